"""Pages that are computed from a sweep's records: `in-n-out-plus` against all others, and stacked."""

from __future__ import annotations

from typing import Any

import pandas as pd
from _harness import Case, Point, Row, table

from linkcal_lab.records import read_records

OURS = "in-n-out-plus"
TRAINING = ["dataset", "model", "train_seed"]
#: Statement, column of shares or means, and the target: at least a share in %, or at most a mean.
TARGETS = (
    ("NLL below the best other's", "nll_won", 95.0),
    ("Brier score below the best other's", "brier_won", 95.0),
    ("AUC not below the uncalibrated model's", "auc_kept", 95.0),
    ("Hits@20 not below the uncalibrated model's", "hits_kept", 95.0),
    ("ECE inside the 95 % noise band", "in_band", 85.0),
    ("mean excess ECE (ECE - noise floor), points", "excess", 0.2),
)


def means(records: pd.DataFrame, fit_on: str) -> pd.DataFrame:
    """Test metrics of each training and calibrator, averaged over calibration seeds."""
    chosen = records[(records["part"] == "test") & (records["fit_on"] == fit_on)]
    return chosen.pivot_table(
        index=[*TRAINING, "calibrator"], columns="metric", values="value", aggfunc="mean"
    )


class Targets(Case):
    """`in-n-out-plus` against the best of all other calibrators, training by training.

    A training is a data set, a model and a training seed. The best other is the best on the test links, for
    each metric on its own, of all other calibrators fitted on the same links. With ``--fit-on stacked`` the
    others are fitted on the validation links, from ``--others`` if it names other records of the same
    trainings.
    """

    name, title = "targets", "in-n-out-plus against the best of all others"
    needs = ("records",)
    settings = {"fit_on": "val", "others": ""}
    derived = True

    def measure(self, point: Point, made: Any) -> list[Row]:
        records = read_records(*point.records)
        values = rest = means(records, point.fit_on)
        if point.fit_on == "stacked":
            rest = means(read_records(point.others) if point.others else records, "val")
        ours = values.xs(OURS, level="calibrator")
        raw = rest.xs("uncalibrated", level="calibrator").loc[ours.index]
        others = rest[rest.index.get_level_values("calibrator") != OURS].groupby(level=TRAINING)
        best = others[["nll", "brier"]].min().loc[ours.index]
        rows = pd.DataFrame(
            {
                "nll_won": ours["nll"] < best["nll"],
                "brier_won": ours["brier"] < best["brier"],
                "auc_kept": ours["auc"] >= raw["auc"],
                "hits_kept": ours["hits@20"] >= raw["hits@20"],
                "in_band": ours["ece"] <= ours["ece_floor_q95"],
                "excess": 100.0 * (ours["ece"] - ours["ece_floor"]),
                "nll_gain": best["nll"] - ours["nll"],
                "auc_gain": 100.0 * (ours["auc"] - raw["auc"]),
                "hits_gain": 100.0 * (ours["hits@20"] - raw["hits@20"]),
            }
        )
        return [{str(k): v for k, v in row.items()} for row in rows.reset_index().to_dict(orient="records")]

    def page(self, rows: pd.DataFrame, settings: Point) -> list[str]:
        lines = []
        for text, name, target in TARGETS:
            values = rows[name].astype(float)
            mean, error = values.mean(), values.std() / len(values) ** 0.5
            if name == "excess":
                row = [f"<= {target:g}", f"{mean:.3f} ± {error:.3f}", mean <= target]
            else:
                counts = f"{values.sum():.0f} of {len(values)}"
                row = [f">= {target:g} %", f"{100 * mean:.1f} % ({counts})", 100 * mean >= target]
            lines.append([text, *row[:2], "yes" if row[2] else "no"])
        return [
            f"{len(rows)} trainings, fitted on {settings.fit_on}. Gains: NLL in nats over the best other; "
            "AUC and Hits@20 in points over the uncalibrated model.",
            table(["in-n-out-plus", "target", "measured", "reached"], lines, 1),
            *(self._by(rows, level) for level in ("dataset", "model")),
        ]

    def _by(self, rows: pd.DataFrame, level: str) -> str:
        head = [level, "trainings", "NLL won", "Brier won", "AUC kept", "Hits@20 kept", "in band"]
        lines = []
        for name, part in rows.groupby(level):
            shares = [f"{100.0 * part[column].mean():.0f} %" for _, column, _ in TARGETS[:-1]]
            gains = [f"{part['excess'].mean():.2f}", f"{part['nll_gain'].mean():.4f}"]
            gains += [f"{part['auc_gain'].mean():+.2f}", f"{part['hits_gain'].mean():+.1f}"]
            lines.append([name, len(part), *shares, *gains])
        return table([*head, "excess ECE", "NLL gain", "AUC gain", "Hits@20 gain"], lines)


class Stacked(Case):
    """The stacked form of `in-n-out-plus` beside the plain one, training by training.

    Both are fitted on the same validation links of the same trainings; the stacked one has a fit to the
    training links, leave-one-out, as a further input. NLL in nats, the others in percent or points; excess:
    ECE less its noise floor. +- is a standard error over trainings.
    """

    name, title = "stacked", "Stacked in-n-out-plus beside the plain one"
    needs = ("records",)
    derived = True
    #: Metric, factor, digits, and whether less is better.
    METRICS = (
        ("nll", 1.0, 4, True), ("brier", 100.0, 2, True), ("auc", 100.0, 2, False),
        ("hits@20", 100.0, 1, False), ("excess", 100.0, 2, True),
    )  # fmt: skip

    def measure(self, point: Point, made: Any) -> list[Row]:
        records = read_records(*point.records)
        forms = [means(records, fit_on).xs(OURS, level="calibrator") for fit_on in ("val", "stacked")]
        forms = [form.assign(excess=form["ece"] - form["ece_floor"]) for form in forms]
        both = forms[0].add_suffix(" plain").join(forms[1].add_suffix(" stacked"), how="inner")
        return [{str(k): v for k, v in row.items()} for row in both.reset_index().to_dict(orient="records")]

    def page(self, rows: pd.DataFrame, settings: Point) -> list[str]:
        lines = []
        for name, factor, digits, less in self.METRICS:
            plain, stacked = (factor * rows[f"{name} {form}"] for form in ("plain", "stacked"))
            change = stacked - plain
            better = int(((change < 0) if less else (change > 0)).sum())
            mean = f"{change.mean():+.{digits}f} +- {change.std(ddof=1) / len(change) ** 0.5:.{digits}f}"
            both = (f"{form.mean():.{digits}f}" for form in (plain, stacked))
            lines.append([name, *both, mean, f"{better} of {len(rows)}"])
        inside = [rows[f"ece {form}"] <= rows[f"ece_floor_q95 {form}"] for form in ("plain", "stacked")]
        lines.append(["ECE in the 95 % band", *(f"{100 * part.mean():.0f} %" for part in inside), "", ""])
        return [
            table(["metric", "plain", "stacked", "stacked - plain", "stacked better"], lines),
            *(self._by(rows, level) for level in ("dataset", "model")),
        ]

    def _by(self, rows: pd.DataFrame, level: str) -> str:
        lines = []
        for key, part in rows.groupby(level):
            changes = [
                f"{factor * (part[f'{name} stacked'] - part[f'{name} plain']).mean():+.{digits}f}"
                for name, factor, digits, _ in self.METRICS
            ]
            lines.append([key, *changes])
        return table([level, *(name for name, *_ in self.METRICS)], lines)
