"""Random inputs are answered rightly or refused in one line; ``make fuzz`` tries many, ``make test`` a few.

LINKCAL_FUZZ is the number of inputs, LINKCAL_FUZZ_SEED chooses other ones.
"""

import csv
import io
import math
import os
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, seed, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from linkcal import CalibratedLinkPredictor, StructuralCalibrator, toggle_edges
from linkcal.calibrators import CALIBRATORS, make_calibrator
from linkcal.cli import main
from linkcal.data import Graph, NodeIds, read_edges, read_pairs
from linkcal.decisions import certified_threshold, conformal_p_values, expected_threshold, select_links
from linkcal.exceptions import LinkcalError
from linkcal.metrics import METRICS
from linkcal.models import make_model

NUMBER, SEED = int(os.environ.get("LINKCAL_FUZZ", "400")), int(os.environ.get("LINKCAL_FUZZ_SEED", "0"))
#: Parts of a thousand of all inputs.
SHARES = {
    "metrics": 400, "decisions": 250, "calibrators": 60, "readers": 230, "toggles": 25, "artifacts": 25,
    "cli": 10,
}  # fmt: skip
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.filterwarnings("error::RuntimeWarning")]


def fuzz(part):
    """Decorator: so many inputs, the same ones for the same seed."""

    def decorate(test):
        count = max(2, NUMBER * SHARES[part] // 1000)
        quick = settings(
            max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )
        return seed(SEED)(quick(test))

    return decorate


def answered(function, *arguments, **options):
    """What a call answers; None if it refuses in one line. Any other error is a finding."""
    try:
        return function(*arguments, **options)
    except LinkcalError as error:
        text = str(error)
        assert text
        assert "\n" not in text
        assert len(text) <= 1000
        return None


ODD = st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 0.5, 1.0, 2.0, -1.0, 1e308, 5e-324, 10**400])
ANYTHING = st.none() | st.booleans() | st.text(max_size=3) | ODD | st.lists(ODD, max_size=3) | st.integers()
UNIT = st.floats(0, 1) | st.sampled_from([0.0, 1.0, 0.5])


@st.composite
def labelled(draw, values=UNIT, least=0, most=30):
    """Labels and a number for each."""
    number = draw(st.integers(least, most))
    y = draw(st.lists(st.integers(0, 1), min_size=number, max_size=number))
    return y, draw(st.lists(values, min_size=number, max_size=number))


def reference(name, y, p):
    """The same number by scikit-learn, where it has one."""
    known = {
        "brier": lambda: np.mean((np.array(p) - np.array(y)) ** 2),
        "nll": lambda: sklearn_metrics.log_loss(y, np.clip(p, 1e-12, 1 - 1e-12), labels=[0, 1]),
        "auc": lambda: sklearn_metrics.roc_auc_score(y, p),
        "ap": lambda: sklearn_metrics.average_precision_score(y, p),
        "acc": lambda: np.mean((np.array(p) > 0.5) == np.array(y)),
    }
    return known.get(name)


@fuzz("metrics")
@given(st.sampled_from(sorted(METRICS)), labelled() | st.tuples(ANYTHING, ANYTHING), ANYTHING)
def test_metrics(name, links, weight):
    y, p = links
    spec = METRICS[name]
    value = answered(spec.function, y, p)
    if value is not None:
        low, high = spec.range
        assert low - 1e-12 <= value <= high + 1e-12
        other = reference(name, y, p)
        clear = name != "nll" or all(1e-9 < each < 1 - 1e-9 for each in p)
        if other is not None and clear:
            assert value == pytest.approx(other(), abs=1e-9)
        once = answered(spec.function, list(y) * 2, list(p) * 2)
        if name not in ("ece_quantile", "ece_debiased", "hits@20", "hits@50", "mrr"):  # these count links
            assert once == pytest.approx(value, abs=1e-9)
    answered(spec.function, y, p, sample_weight=weight)


SCORES = st.lists(st.floats(-1e6, 1e6) | st.integers(-2, 2), max_size=12)


@fuzz("decisions")
@given(SCORES | ANYTHING, SCORES | ANYTHING, st.floats(0.01, 0.99) | ANYTHING)
def test_decisions(score, null, level):
    p = answered(conformal_p_values, score, null)
    if p is not None and isinstance(score, list) and isinstance(null, list):
        expected = [(1 + sum(each >= one for each in null)) / (len(null) + 1) for one in score]
        assert p.tolist() == pytest.approx(expected, abs=1e-12)
        chosen = answered(select_links, score, null, fdr=level)
        if chosen is not None:
            # Benjamini and Hochberg by definition: the largest k of which k p-values are at most k fdr / n.
            n, most = len(p), 0
            for k in range(1, n + 1):
                most = k if sorted(p)[k - 1] <= k * level / n * (1 + 1e-12) else most
            limit = most * level / n * (1 + 1e-12) if most else -1
            assert chosen.tolist() == [each <= limit for each in p]
    y = [i % 2 for i in range(len(score))] if isinstance(score, list) else score
    answered(expected_threshold, score, precision=level)
    answered(expected_threshold, score, recall=level)
    answered(certified_threshold, score, y, precision=level)
    answered(certified_threshold, score, y, recall=level, base_rate=level)


LOGIT = st.floats(-30, 30) | st.sampled_from([0.0, 1e-300, 700.0, -700.0])


@fuzz("calibrators")
@given(
    st.sampled_from(sorted(set(CALIBRATORS) - {"embedding-mlp", "in-n-out", "in-n-out-plus"})),
    labelled(LOGIT, least=2, most=40),
    st.lists(LOGIT | ODD, max_size=4),
    st.sampled_from([None, 0.5, 1e-6]),
)
def test_calibrators(name, links, query, rate):
    y, logit = links
    fitted = answered(make_calibrator(name).fit, np.array(logit)[:, None], np.array(y))
    if fitted is None:
        return
    p = answered(fitted.predict_proba, np.array(logit)[:, None])
    assert p is not None
    assert ((p >= 0) & (p <= 1)).all()
    order = np.argsort(logit, kind="stable")
    again = answered(make_calibrator(name).fit, np.array(logit)[order, None], np.array(y)[order])
    np.testing.assert_allclose(again.predict_proba(np.array(logit)[:, None]), p, atol=1e-6)
    if name in ("temperature", "isotonic", "uncalibrated"):
        assert (np.diff(p[order, 1]) >= -1e-12).all()
    other = make_calibrator(name).set_state(fitted.get_state())
    assert (other.predict_proba(np.array(logit)[:, None]) == p).all()
    try:
        column = np.array(query, dtype=float)[:, None]
    except OverflowError:
        return
    found = answered(fitted.predict_proba, column)
    assert found is None or np.isfinite(found).all()


NAMES = st.sampled_from(["a", "b", "c", "é", "Z 1", "x,y", 'q"q', "007", "7", "-1"]) | st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp", "Cf")), min_size=1, max_size=3
)


@fuzz("readers")
@given(
    rows=st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=8),
    damage=st.none() | st.tuples(st.integers(0, 200), st.binary(max_size=3)),
    ending=st.sampled_from([".csv", ".tsv", ".parquet", ".npz"]),
    directed=st.booleans(),
)
def test_readers(files, rows, damage, ending, directed):
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t" if ending == ".tsv" else ",", lineterminator="\n")
    writer.writerows([("source", "target"), *rows])
    content = text.getvalue().encode()
    if damage is not None:
        at = damage[0] % (len(content) + 1)
        content = content[:at] + damage[1] + content[at + len(damage[1]) :]
    path = files / f"edges{ending}"
    path.write_bytes(content)
    found = answered(read_edges, path, directed=directed)
    if found is not None and damage is None and ending in (".csv", ".tsv"):
        names = [[str(each).strip() for each in row] for row in rows]
        expected = {(u, v) if directed else tuple(sorted((u, v))) for u, v in names if u != v}
        ends = [list(map(str, found.node_ids.decode(row).to_pylist())) for row in found.graph.pairs]
        assert {(u, v) if directed else tuple(sorted((u, v))) for u, v in zip(*ends, strict=True)} == expected
    answered(lambda: [len(chunk) for chunk in read_pairs(path, NodeIds.range(9), chunk_size=3)])


@fuzz("toggles")
@given(
    st.sampled_from(["gcn", "sage", "gin", "vgae", "peg"]),
    st.integers(2, 12), st.integers(1, 3), st.booleans(), st.integers(0, 2**31), st.floats(0, 0.7),
)  # fmt: skip
def test_toggles(name, nodes, layers, directed, number, density):
    generator = torch.Generator().manual_seed(number)
    arcs = (torch.rand(nodes, nodes, generator=generator) < density).nonzero().T
    graph = Graph.from_edges(arcs, nodes, x=torch.randn(nodes, 3, generator=generator), directed=directed)
    options = {"position_channels": 1} if name == "peg" else {}
    model = make_model(name, 3, num_layers=layers, seed=number % 1000, **options).eval()
    graph = model.prepare(graph)
    pairs = torch.randint(nodes, (2, 6), generator=generator)
    pairs = pairs[:, pairs[0] != pairs[1]]
    assume(pairs.size(1))
    shared = {"undirected": not directed}
    fast = toggle_edges(model, graph.x, graph.edge_index, pairs, **shared)
    naive = toggle_edges(model, graph.x, graph.edge_index, pairs, method="naive", **shared)
    for state in ("logit_absent", "logit_present"):
        ours, theirs = getattr(fast, state), getattr(naive, state)
        assert (ours - theirs).abs().max() <= 2e-5 * (1 + theirs.abs().max())


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def saved(small_split, trained_gcn, tmp_path_factory):
    folder = tmp_path_factory.mktemp("artifact")
    clp = CalibratedLinkPredictor(trained_gcn, StructuralCalibrator()).fit(small_split)
    clp.save(folder / "saved")
    pairs = small_split.test.edge_label_index[:, :5]
    (folder / "pairs.csv").write_text(
        "source,target\n" + "\n".join(f"{u},{v}" for u, v in pairs.T.tolist()) + "\n"
    )
    return SimpleNamespace(folder=folder, path=folder / "saved", pairs=pairs, p=clp.predict_proba(pairs))


@fuzz("artifacts")
@given(st.integers(0, 7), st.integers(0, 10**6), st.binary(min_size=1, max_size=3), st.booleans())
def test_artifacts(saved, file, place, change, cut):
    """A byte changed or the end cut off in any file: refused, or the same numbers."""
    copy = saved.folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(saved.path, copy)
    path = sorted(copy.iterdir())[file % len(list(copy.iterdir()))]
    content = path.read_bytes()
    at = place % len(content)
    path.write_bytes(content[:at] if cut else content[:at] + change + content[at + len(change) :])
    found = answered(lambda: CalibratedLinkPredictor.load(copy).predict_proba(saved.pairs))
    assert found is None or torch.equal(found, saved.p)


HUGE = st.integers(-(10**130), 10**130).map(str)
VALUES = (
    HUGE | st.floats().map(str) | st.sampled_from(["", "density", "1", "0", "nan", "1e308", "x", "platt"])
)
OPTIONS = {
    "score": ["--base-rate", "--interval", "--chunk-size", "--calibrator", "--source", "--target"],
    "select": ["--fdr", "--chunk-size", "--calibrator", "--source"],
    "top": ["-k", "--candidates", "--chunk-size", "--base-rate", "--calibrator"],
}


@fuzz("cli")
@given(st.data())
def test_command_line(saved, data):
    command = data.draw(st.sampled_from(sorted(OPTIONS)))
    given_ones = data.draw(st.lists(st.sampled_from(OPTIONS[command]), max_size=2, unique=True))
    arguments = [command, str(saved.path), *([] if command == "top" else [str(saved.folder / "pairs.csv")])]
    for option in given_ones:
        arguments += [option, data.draw(VALUES)]
    out = saved.folder / "out.csv"
    assert main([*arguments, "--out", str(out)]) in (0, 1, 2)
    rows = list(csv.DictReader(out.open())) if out.exists() else []
    assert all(0 <= float(row.get("probability", 0)) <= 1 for row in rows)
