"""The report: its table, complete, escaped, self-contained, and never half-written."""

import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from scipy.stats import binomtest

from linkcal.exceptions import InputError
from linkcal.plots import plot_reliability
from linkcal.report import write_report
from linkcal.report._page import build_table, headline

METRICS = {
    "dataset": "cora",
    "model": "vgae",
    "seed": 3,
    "fit_on": "val",
    "negatives_per_positive": 4.0,
    "counts": {"nodes": 10, "edges": 9, "non_edges": 36, "test_positives": 500, "test_negatives": 2000},
    "results": {
        "uncalibrated": {"ece": 0.152, "ece_floor": 0.031, "ece_floor_q95": 0.041, "nll": 0.61, "auc": 0.882},
        "platt": {"ece": 0.035, "ece_floor": 0.032, "ece_floor_q95": 0.042, "nll": 0.44, "auc": 0.882},
        "in-n-out": {"ece": 0.101, "ece_floor": 0.03, "ece_floor_q95": 0.04, "nll": 0.52, "auc": 0.884},
    },
}
CONFIG = {"seed": 3, "epochs": 200, "versions": {"linkcal": "0.1.0"}}


class Page(HTMLParser):
    """Text, tags and balance of a page, by the standard library."""

    VOID = frozenset({"meta", "img", "link", "br", "hr", "input"})

    def __init__(self, source: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(source)
        self.text = re.sub(r"\s+", " ", self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str):
        assert self.open.pop() == tag

    def handle_data(self, data: str):
        self.text += data + " "  # words of neighbouring tags stay apart


def render(tmp_path, **changes: object) -> Page:
    arguments = {"title": "A run", "metrics": METRICS, "config": CONFIG, **changes}
    path = write_report(tmp_path / "report.html", **arguments)
    page = Page(path.read_text(encoding="utf-8"))
    assert page.open == []
    return page


def test_states_data_model_and_links(tmp_path):
    text = render(tmp_path).text
    for expected in (
        "Data set cora",
        "Model vgae",
        "Seed 3",
        "Test pairs 2,500",
        "Negatives per positive 4",
        "Measured on 2,500 test pairs (500 links, 2,000 negatives)",
        "ECE % ↓ n = 2,500",
        "Columns marked % are in percent",
        "were fitted on the validation pairs",
        "hold where 20 % of the query pairs are links (4 negatives for each link)",
        "Among all pairs of this graph 20 % are links",
        "non edges 36",
        '"epochs": 200',
    ):
        assert expected in text


def test_table_has_every_calibrator_and_marks(tmp_path):
    page = render(tmp_path)
    source = (tmp_path / "report.html").read_text(encoding="utf-8")
    for name in METRICS["results"]:
        assert f'<th scope="row">{name}</th>' in source
    best = re.findall(r'<td class="best">([\d.]+)', source)
    assert best == ["3.50", "0.4400", "88.40"]
    assert source.count('<span class="mark" title=') == 1  # platt alone is within its noise
    assert "Within the noise of perfect calibration: platt." in page.text


def test_says_what_the_model_adds_and_where_the_selected_calibrator_is_wrong(tmp_path):
    results = {"platt": METRICS["results"]["platt"] | {"group_z": 4.21, "group_bound": 2.9}}
    value = {"gain": 0.01, "sentence": "Beyond <degrees> the model lowers NLL."}
    metrics = METRICS | {"results": results, "selected": "platt", "model_value": value}
    text = render(tmp_path, metrics=metrics | {"worst_segment": {"platt": "common=0"}}).text
    assert "Beyond <degrees> the model lowers NLL." in text
    assert "platt deviates most in common=0: by 4.2 standard deviations, beyond the 95 % bound of 2.9" in text
    assert "standard deviations, beyond" not in render(tmp_path, metrics=metrics).text


def test_names_what_the_calibrators_were_fitted_on(tmp_path):
    text = render(tmp_path, metrics={**METRICS, "fit_on": "train", "toggle_method": "naive"}).text
    assert "was computed by the method naive." in text
    assert "fitted to easier scores than those they are tested on" in text


def test_no_good_news_where_there_is_none(tmp_path):
    results = {
        "uncalibrated": {"ece": 0.1, "ece_floor_q95": 0.04},
        "platt": {"ece": 0.2, "ece_floor_q95": 0.04},
    }
    text = render(tmp_path, metrics={"results": results}).text
    assert "No ECE is within the noise of perfect calibration" in text


def test_unknown_facts_are_marked_or_left_out(tmp_path):
    metrics = {"results": {"a": {"ece": 0.1, "auc": float("nan")}}}
    text = render(tmp_path, metrics=metrics).text
    assert "Test pairs not recorded" in text
    assert "The number of test pairs was not recorded" in text
    assert "n/a: the metric is undefined here" in text
    assert "Seed" not in text
    assert "None" not in text
    assert "nan" not in text


def test_user_text_is_escaped(tmp_path):
    evil = "<script>alert('x')</script>"
    metrics = {**METRICS, "dataset": evil, "results": {evil: {"ece": 0.1}}, "counts": {evil: 1}}
    page = render(tmp_path, title=evil, metrics=metrics, config={evil: evil})
    assert [tag for tag, _ in page.tags].count("script") == 1  # the page's own
    assert page.text.count("alert") >= 5


@pytest.fixture(scope="module")
def tested():
    """Labels, and probabilities that are right and too large, by name."""
    rng = np.random.default_rng(0)
    p = rng.beta(1.5, 1.5, 3000).round(2)
    return (rng.random(3000) < p).astype(float), {"platt": p, "uncalibrated": p**0.4}, None


def test_is_self_contained(tmp_path, tested):
    page = render(tmp_path, tested=tested)
    assert [a for _, a in page.tags for key in a if key in ("href", "src")] == []
    assert {"link", "iframe", "img"}.isdisjoint(tag for tag, _ in page.tags)


def monotone(p, label, weight):
    """Distinct values, and the largest over starts of the smallest mean over ends of runs around each."""
    values, place = np.unique(p, return_inverse=True)
    mass, links = (np.append(0, np.bincount(place, w).cumsum()) for w in (weight, weight * label))
    start, end = np.mgrid[: len(values), 1 : len(values) + 1]
    some = start < end
    mean = np.where(some, (links[end] - links[start]) / (mass[end] - mass[start] + ~some), np.inf)
    return values, np.array([mean[: i + 1, i:].min(axis=1).max() for i in range(len(values))])


@pytest.mark.parametrize("weighted", [False, True])
def test_reliability_diagrams_show_what_matplotlib_draws(tmp_path, tested, weighted):
    """Points, which of them are outside the band, and the best monotone fit."""
    label, probability, _ = tested
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 3000) if weighted else None
    drawn = {tag: [] for tag in ("near", "far", "steps", "band")}
    for tag, attributes in render(tmp_path, tested=(label, probability, weight)).tags:
        if tag in ("path", "rect") and attributes.get("class") in drawn:
            drawn[attributes["class"]].append(attributes.get("d") or float(attributes["height"]))
    expected = {"near": [], "far": []}
    for number, p in enumerate(probability.values()):
        inside, outside = plot_reliability((label, p), sample_weight=weight).axes.collections
        for name, points in (("near", inside), ("far", outside)):
            expected[name] += points.get_offsets().tolist()
        steps = np.array(re.findall(r"[\d.]+", drawn["steps"][number]), dtype=float).reshape(-1, 2)
        x, y = (steps[:, 0] - 30) / 200, (205 - steps[:, 1]) / 200
        values, fit = monotone(p, label, np.ones(3000) if weight is None else weight)
        np.testing.assert_allclose(np.interp(values, x, y), fit, atol=0.02)  # a flank is 0.1 of 200 wide
        assert np.abs(np.interp(values, x, y) - fit).mean() < 1e-3
    for name, points in expected.items():
        found = [place.groups() for path in drawn[name] if (place := re.match(r"M([\d.]+) ([\d.]+)m", path))]
        x, y = np.array(found, dtype=float).T
        np.testing.assert_allclose(np.stack([x - 30, 205 - y], axis=1) / 200, points, atol=3e-4)
    assert len(expected["near"]) > 11 < len(expected["far"])
    assert len(drawn["band"]) == sum(map(len, expected.values()))


def test_what_a_probability_means_is_counted(tmp_path, tested):
    label, probability, _ = tested
    metrics = METRICS | {"selected": "platt"}
    text = render(tmp_path, metrics=metrics, tested=tested).text
    raw = probability["uncalibrated"]
    near = np.abs(raw - 0.8) <= 0.05
    ends = binomtest(int(label[near].sum()), int(near.sum())).proportion_ci(method="exact")
    span = f"{100 * ends.low:.0f} to {100 * ends.high:.0f} %, of {near.sum()} pairs"
    assert f"80 % {100 * label[near].mean():.0f} % ({span})" in text
    assert (np.abs(raw - 0.1) <= 0.05).sum() < 30
    assert "10 % fewer than 30 pairs" in text
    both = np.stack(list(probability.values()))
    counts = [(np.abs(both - at / 10) <= 0.05).sum(axis=1).min() for at in range(5, 10)]
    assert f"When the model says about {50 + 10 * int(np.argmax(counts))} %, links occur in " in text
    # Weights stand for another base rate, and then the test pairs are no sample of what is said.
    weighted = render(tmp_path, metrics=metrics, tested=(*tested[:2], np.ones(3000))).text
    assert "What a probability means" not in weighted
    assert "Links among them 20 %" in weighted


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"metrics": {}}, InputError, "metrics must hold 'results' with at least one calibrator, got none"),
        ({"config": {"a": object()}}, TypeError, "Object of type object is not JSON serializable"),
        ({"tested": ([0, 2], {"a": [0.2, 0.8]}, None)}, InputError, "y_true must hold only 0 and 1"),
    ],
)
def test_bad_input_is_named_and_the_old_page_stays(tmp_path, changes: dict, error: type, message: str):
    path = tmp_path / "report.html"
    path.write_text("old")
    arguments = {"title": "A run", "metrics": METRICS, "config": CONFIG, **changes}
    with pytest.raises(error, match=message):
        write_report(path, **arguments)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_selected_calibrator_stands_first_with_intervals(tmp_path):
    ends = {"in-n-out": {"ece": [0.08, 0.1222], "nll": [0.5, 0.54]}}
    metrics = {**METRICS, "selected": "in-n-out", "intervals": ends, "interval_level": 0.95}
    page = render(tmp_path, metrics=metrics)
    assert page.text.count("in-n-out (selected)") == 1
    assert "linkcal score uses in-n-out, which was selected without the test pairs" in page.text
    # platt is better on the test pairs, and that is no news.
    assert headline(metrics) == [
        "in-n-out, selected without the test pairs: ECE 10.10 % (8.00 to 12.22), NLL 0.5200 nats (0.5000 to "
        "0.5400), AUC 88.40 % (95 % intervals in brackets); uncalibrated the ECE is 15.20 %."
    ]
    assert f"Summary {headline(metrics)[0]}" in page.text
    assert "10.10 8.00 to 12.22" in page.text
    assert "Below a value: its 95 % interval" in page.text
    plain = render(tmp_path).text
    assert "selected" not in plain
    assert "Below a value" not in plain
    expected = "AUC 88.20 %; uncalibrated the ECE is 15.20 %."
    assert headline({**METRICS, "selected": "platt"})[0].endswith(expected)


@pytest.mark.parametrize(("kind", "moves"), [("uniform", True), ("two-hop", False)])
def test_no_base_rate_repairs_another_kind_of_negatives(tmp_path, kind: str, moves: bool):
    text = render(tmp_path, metrics={**METRICS, "negatives": kind}).text
    assert f"Kind of negatives {kind}" in text
    assert ("to list all pairs, move the probabilities to that base rate first" in text) == moves
    assert ("They hold only for negatives of the kind two-hop" in text) != moves


# --- the table ----------------------------------------------------------------------------------------------


def cells(results: dict, key: str) -> list:
    columns, rows = build_table(results)
    index = [column.name for column in columns].index(key)
    return [row[index] for row in rows.values()]


def test_best_follows_the_direction_of_the_metric():
    results = {"a": {"ece": 0.1, "auc": 0.9}, "b": {"ece": 0.2, "auc": 0.95}}
    assert [cell.best for cell in cells(results, "ece")] == [True, False]
    assert [cell.best for cell in cells(results, "auc")] == [False, True]


def test_values_that_print_alike_are_all_best_and_a_column_of_one_value_has_none():
    results = {"a": {"ece": 0.10001}, "b": {"ece": 0.10002}, "c": {"ece": 0.2}}
    assert [cell.best for cell in cells(results, "ece")] == [True, True, False]
    assert not any(cell.best for cell in cells({"a": {"auc": 0.9}, "b": {"auc": 0.9}}, "auc"))


def test_missing_values_are_marked_and_never_best():
    results = {"a": {"auc": math.nan}, "b": {"auc": None}, "c": {}, "d": {"auc": 0.4}, "e": {"auc": 0.3}}
    assert [cell.text for cell in cells(results, "auc")] == ["n/a", "n/a", "n/a", "40.00", "30.00"]
    assert [cell.best for cell in cells(results, "auc")] == [False, False, False, True, False]


def test_noise_mark_compares_each_ece_with_its_own_floor():
    results = {
        "a": {"ece": 0.03, "ece_floor_q95": 0.04},
        "b": {"ece": 0.03, "ece_floor_q95": 0.02},
        "c": {"ece": 0.01},
        "d": {"ece": None, "ece_floor_q95": 0.02},
    }
    assert [cell.in_noise for cell in cells(results, "ece")] == [True, False, False, False]
    assert not any(cell.best for cell in cells(results, "ece_floor_q95"))


def test_unknown_keys_are_shown_not_dropped():
    columns, rows = build_table({"a": {"ece": 0.1, "my_metric": 1.5}})
    assert [column.name for column in columns] == ["ece", "my_metric"]
    assert rows["a"][1].text == "1.5000"
