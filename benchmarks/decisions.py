"""Whether the guarantees of selections, thresholds, intervals and refreshes hold where the truth is known.

    python benchmarks/decisions.py --out benchmarks/results/decisions.md

One simulated graph and one trained predictor; the links outside the message-passing graph are drawn anew,
from their true probabilities, for every draw of calibration links, labelled links and query pairs. So
everything random that a guarantee speaks about is random here, and every share can be compared with the
truth.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from _pages import write_page
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import clone
from sklearn.isotonic import IsotonicRegression

from linkcal import CalibratedLinkPredictor, Platt, StructuralCalibrator
from linkcal.artifact import Evidence
from linkcal.calibrators import Calibrator, Isotonic
from linkcal.data import LinkPairs, simulate_graph, split_links
from linkcal.decisions import monotone_interval
from linkcal.decisions._intervals import query_scores, ranking_scores
from linkcal.exceptions import InputError
from linkcal.features import STRUCTURAL_COLUMNS, LinkScorer
from linkcal.models import TrainingConfig, make_model, train_link_predictor

FloatArray = NDArray[np.float64]
MEASURED: dict[str, Calibrator] = {
    "platt": Platt(),
    "isotonic": Isotonic(),
    "in-n-out-plus": StructuralCalibrator(),
}
KINDS = {"none": 0, "structural": len(STRUCTURAL_COLUMNS)}


class World:
    """All pairs outside the message-passing graph: features, and the probability that each is a link."""

    def __init__(self, num_nodes: int, seed: int) -> None:
        graph = simulate_graph(num_nodes, num_features=200, seed=seed)
        split = split_links(graph, val_fraction=0.2, test_fraction=0.2, seed=seed)
        self.model = make_model("gcn", 200, seed=seed)
        train_link_predictor(self.model, split, TrainingConfig(epochs=100), seed=seed)
        self.split = split
        pairs = torch.combinations(torch.arange(num_nodes)).T.contiguous()
        self.pairs = pairs[:, ~split.graph.has_pairs(pairs)]
        assert graph.truth is not None  # simulated
        edge = graph.truth.edge_probability(self.pairs).numpy()
        # An edge is in the message-passing graph with chance 0.6; this pair is not.
        self.p = 0.4 * edge / (1.0 - 0.6 * edge)
        scores = LinkScorer(self.model, split.graph).score(self.pairs)
        self.X = {kind: scores.to_matrix(kind) for kind in KINDS}
        # Mass of each pair, and its probability of being a link, where links and negatives are as many.
        negative = (1.0 - self.p) * self.p.sum() / (1.0 - self.p).sum()
        self.mass, self.true = self.p + negative, self.p / (self.p + negative)
        self.mass /= self.mass.sum()

    def draw(self, rng: np.random.Generator, links: int, others: int) -> tuple[NDArray[np.intp], FloatArray]:
        """Rows of `links` links and `others` negatives of one draw, and their labels."""
        drawn = rng.random(self.p.size) < self.p
        found = rng.choice(np.flatnonzero(drawn), links, replace=False)
        rest = rng.choice(np.flatnonzero(~drawn), others, replace=False)
        return np.concatenate((found, rest)), np.repeat([1.0, 0.0], [links, others])

    def population(self, rng: np.random.Generator, size: int) -> NDArray[np.intp]:
        """Rows drawn by mass."""
        return rng.choice(self.p.size, size, p=self.mass)


def share_at(score: FloatArray, true: FloatArray, asked: FloatArray, bins: int = 200) -> FloatArray:
    """Share of links among pairs of a score: means over narrow windows of a large population."""
    order = np.argsort(score)
    parts = np.array_split(order, bins)
    centre, share = (np.array([values[part].mean() for part in parts]) for values in (score, true))
    return np.asarray(np.interp(asked, centre, share), dtype=np.float64)


def windows(
    calibrator: Calibrator, X: FloatArray, y: FloatArray, asked: FloatArray, level: float
) -> FloatArray:
    fitted = clone(calibrator).fit(X, y)
    p = fitted.predict_proba(asked)[:, 1]
    low, high = monotone_interval(ranking_scores(fitted, X, y), y, query_scores(fitted, asked), level=level)
    return np.column_stack((np.minimum(low, p), np.maximum(high, p)))


def bootstrap(
    calibrator: Calibrator, X: FloatArray, y: FloatArray, asked: FloatArray, level: float, repeats: int = 50
) -> FloatArray:
    rng = np.random.default_rng(0)
    rows = (rng.integers(len(y), size=len(y)) for _ in range(repeats))
    p = [clone(calibrator).fit(X[i], y[i]).predict_proba(asked)[:, 1] for i in rows]
    return np.asarray(np.quantile(p, [(1 - level) / 2, (1 + level) / 2], axis=0).T, dtype=np.float64)


def venn_abers(
    calibrator: Calibrator, X: FloatArray, y: FloatArray, asked: FloatArray, _level: float
) -> FloatArray:
    """The two isotonic fits with the asked link added as a negative and as a link; has no level."""
    fitted = clone(calibrator).fit(X, y)
    score = ranking_scores(fitted, X, y)
    ends = [
        [
            IsotonicRegression().fit(np.append(score, s), np.append(y, label)).predict([s])[0]
            for label in (0.0, 1.0)
        ]
        for s in query_scores(fitted, asked)
    ]
    return np.array(ends)


METHODS: dict[str, Callable[..., FloatArray]] = {
    "windows (predict_interval)": windows,
    "bootstrap of the calibrator": bootstrap,
    "Venn-ABERS": venn_abers,
}


def intervals(
    world: World,
    draws: int,
    size: int,
    level: float,
    methods: dict[str, Callable[..., FloatArray]],
    calibrators: dict[str, Calibrator],
) -> list[str]:
    lines = [
        "| calibrator | interval | coverage of the share at the score | worst tenth of scores | "
        "coverage of the pair's own probability | mean width |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for name, calibrator in calibrators.items():
        X_all = world.X[calibrator.link_features]
        for method, interval in methods.items():
            rng = np.random.default_rng(1)
            hit, own, width, tenth = [], [], [], []
            for _ in range(draws):
                rows, y = world.draw(rng, size // 2, size // 2)
                many, asked = world.population(rng, 40_000), world.population(rng, 200)
                fitted = clone(calibrator).fit(X_all[rows], y)
                at = query_scores(fitted, X_all[asked])
                truth = share_at(query_scores(fitted, X_all[many]), world.true[many], at)
                low, high = interval(calibrator, X_all[rows], y, X_all[asked], level).T
                hit.append((low <= truth) & (truth <= high))
                own.append(((low <= world.true[asked]) & (world.true[asked] <= high)).mean())
                width.append((high - low).mean())
                tenth.append(np.argsort(np.argsort(at)) * 10 // len(at))
            covered, group = np.concatenate(hit), np.concatenate(tenth)
            worst = min(covered[group == g].mean() for g in range(10))
            lines.append(
                f"| {name} | {method} | {100 * covered.mean():.1f} | {100 * worst:.1f} | "
                f"{100 * np.mean(own):.1f} | {np.mean(width):.3f} |"
            )
            print(lines[-1], flush=True)
    return lines


def predictor_of(
    world: World, calibrator: Calibrator, rng: np.random.Generator, size: int
) -> CalibratedLinkPredictor:
    """A predictor calibrated on a fresh draw, with fresh null pairs (unknown links among them)."""
    rows, y = world.draw(rng, size // 2, size // 2)
    links = pairs_of(world, rows, y)
    split = type(world.split)(world.split.graph, world.split.train, links, world.split.test, seed=0)
    predictor = CalibratedLinkPredictor(world.model, calibrator).fit(split, num_null=0)
    null = rng.choice(world.p.size, 10_000, replace=False)
    predictor.evidence_ = Evidence(links, world.pairs[:, null])
    return predictor


def without_isotonic(calibrators: dict[str, Calibrator]) -> list[tuple[str, Calibrator]]:
    """Decisions are by order, which isotonic regression takes from the logit as `platt` does."""
    return [(name, calibrator) for name, calibrator in calibrators.items() if name != "isotonic"]


def pairs_of(world: World, rows: NDArray[np.intp], y: FloatArray) -> LinkPairs:
    return LinkPairs(world.pairs[:, rows], torch.from_numpy(y).float())


def selection(world: World, draws: int, size: int, calibrators: dict[str, Calibrator]) -> list[str]:
    lines = [
        "| calibrator | fdr | asked links / negatives | realised rate | standard error | links found |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, calibrator in without_isotonic(calibrators):
        for links, others in ((200, 800), (50, 2000)):
            rng = np.random.default_rng(2)
            results: dict[float, list[tuple[float, float]]] = {0.1: [], 0.2: []}
            for _ in range(draws):
                predictor = predictor_of(world, calibrator, rng, size)
                rows, y = world.draw(rng, links, others)
                for fdr, seen in results.items():
                    chosen = predictor.select(world.pairs[:, rows], fdr=fdr).selected.numpy()
                    seen.append(((1 - y)[chosen].sum() / max(chosen.sum(), 1), y[chosen].sum() / links))
            for fdr, seen in results.items():
                rate, found = np.array(seen).T
                lines.append(
                    f"| {name} | {fdr} | {links} / {others} | {rate.mean():.4f} | "
                    f"{rate.std() / np.sqrt(draws):.4f} | {100 * found.mean():.1f} % |"
                )
                print(lines[-1], flush=True)
    return lines


def thresholds(world: World, draws: int, size: int, calibrators: dict[str, Calibrator]) -> list[str]:
    lines = [
        "| calibrator | rule | wanted | mean realised | below the wanted in | none found in | recall |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, calibrator in without_isotonic(calibrators):
        for what, wanted in (("precision", 0.7), ("precision", 0.8), ("recall", 0.8)):
            for rule in ("expected", "tested, 95 %"):
                rng = np.random.default_rng(3)
                real, recall, none = [], [], 0
                for _ in range(draws):
                    predictor = predictor_of(world, calibrator, rng, size)
                    labelled = (
                        pairs_of(world, *world.draw(rng, size // 2, size // 2))
                        if rule != "expected"
                        else None
                    )
                    try:
                        found = predictor.threshold_for(labelled, **{what: wanted})
                    except InputError:
                        none += 1
                        continue
                    many = world.population(rng, 40_000)
                    z = predictor.calibrator_.decision_function(world.X[calibrator.link_features][many])
                    above, true = z >= found.logit, world.true[many]
                    recall.append(true[above].sum() / true.sum())
                    real.append(true[above].mean() if what == "precision" else recall[-1])
                missed = np.mean(np.array(real) < wanted) if real else np.nan
                lines.append(
                    f"| {name} | {rule} | {what} {wanted} | {np.mean(real) if real else np.nan:.3f} | "
                    f"{100 * missed:.1f} % | {none} of {draws} | "
                    f"{np.mean(recall) if recall else np.nan:.3f} |"
                )
                print(lines[-1], flush=True)
    return lines


def refreshes(world: World, draws: int, size: int) -> list[str]:
    lines = [
        "The number of links among the new pairs is binomial.",
        "",
        "| new links / negatives (mean) | best offset on the population | mean offset | standard deviation | "
        "mean standard error | within 1.96 of them |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    rng = np.random.default_rng(4)
    rows, y = world.draw(rng, size // 2, size // 2)
    fitted = Platt().fit(world.X["none"][rows], y)
    for links, others in ((50, 50), (50, 450), (200, 1800)):
        ratio = others / links
        many = world.population(rng, 200_000)
        weight = np.concatenate((world.true[many], ratio * (1 - world.true[many])))
        Z = np.tile(world.X["none"][many], (2, 1))
        best = clone(fitted).set_state(fitted.get_state())
        best.refresh(Z, np.repeat([1, 0], len(many)), sample_weight=weight)
        seen = []
        for _ in range(draws):
            drawn = int(
                np.clip(rng.binomial(links + others, links / (links + others)), 1, links + others - 1)
            )
            rows, y = world.draw(rng, drawn, links + others - drawn)
            fresh = fitted.refresh(world.X["none"][rows], y)
            seen.append((fresh.offset_, fresh.offset_standard_error_))
        offset, error = np.array(seen).T
        inside = np.mean(np.abs(offset - best.offset_) <= 1.96 * error)
        lines.append(
            f"| {links} / {others} | {best.offset_:.3f} | {offset.mean():.3f} | {offset.std():.3f} | "
            f"{error.mean():.3f} | {100 * inside:.1f} % |"
        )
        print(lines[-1], flush=True)
    return lines


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command.add_argument("--nodes", type=int, default=2708)
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--size", type=int, default=1000, help="calibration links and negatives together")
    command.add_argument("--draws", type=int, default=200, help="of selections, thresholds and refreshes")
    command.add_argument("--interval-draws", type=int, default=30)
    command.add_argument("--methods", nargs="+", default=["windows", "bootstrap", "Venn-ABERS"])
    command.add_argument("--calibrators", nargs="+", choices=MEASURED, default=[*MEASURED])
    command.add_argument("--parts", nargs="+", default=["intervals", "selection", "thresholds", "refreshes"])
    command.add_argument("--out", type=Path)
    return command


def main() -> None:
    options = parser().parse_args()
    world = World(options.nodes, options.seed)
    calibrators = {name: MEASURED[name] for name in options.calibrators}
    best = np.abs(expit(0.0) - world.true) @ world.mass
    made = {
        "intervals": lambda: intervals(
            world,
            options.interval_draws,
            options.size,
            0.9,
            {name: METHODS[name] for name in METHODS if name.split()[0] in options.methods},
            calibrators,
        ),
        "selection": lambda: selection(world, options.draws, options.size, calibrators),
        "thresholds": lambda: thresholds(world, options.draws, options.size, calibrators),
        "refreshes": lambda: refreshes(world, options.draws, options.size),
    }
    text = [
        "# Decisions where the truth is known",
        f"`python benchmarks/decisions.py --nodes {options.nodes} --seed {options.seed} "
        f"--size {options.size} --draws {options.draws} --interval-draws {options.interval_draws}`",
        f"A simulated graph of {options.nodes} nodes, one GCN, one to one negatives; {options.draws} draws "
        f"({options.interval_draws} for intervals, 200 query pairs each) of {options.size} calibration "
        f"links. Mean |true probability - 1/2| of the pairs: {best:.3f}.",
    ]
    for part in options.parts:
        text += [f"## {part.capitalize()}", "\n".join(made[part]())]
    if options.out:
        write_page(options.out, "\n\n".join(text) + "\n")


if __name__ == "__main__":
    main()
