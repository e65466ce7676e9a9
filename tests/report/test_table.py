"""Marks and texts of the table."""

from __future__ import annotations

import math

from linkcal.metrics import EVALUATION_KEYS
from linkcal.report._page import build_table


def cells(results: dict, key: str) -> list:
    columns, rows = build_table(results)
    index = [column.name for column in columns].index(key)
    return [row.cells[index] for row in rows]


def test_every_key_of_an_evaluation_has_a_heading_of_its_own() -> None:
    columns, rows = build_table({"a": dict.fromkeys(EVALUATION_KEYS, 0.5)})
    assert {column.name for column in columns} == set(EVALUATION_KEYS)
    assert all(column.description and column.label != column.name for column in columns)
    assert len({column.label for column in columns}) == len(columns)
    assert len(rows[0].cells) == len(columns)


def test_fractions_become_percent_and_scores_do_not() -> None:
    results = {"a": {"ece": 0.1234, "nll": 0.56789, "auc": 0.9, "acc": 0.8768, "seconds_fit": 1.234}}
    columns, rows = build_table(results)
    texts = {c.name: cell.text for c, cell in zip(columns, rows[0].cells, strict=True)}
    assert texts == {"ece": "12.34", "nll": "0.5679", "auc": "90.00", "acc": "87.7", "seconds_fit": "1.23"}
    units = {c.name: c.unit for c in columns}
    assert units == {"ece": "%", "nll": "nats", "auc": "%", "acc": "%", "seconds_fit": "s"}


def test_best_follows_the_direction_of_the_metric() -> None:
    results = {"a": {"ece": 0.1, "auc": 0.9}, "b": {"ece": 0.2, "auc": 0.95}}
    assert [cell.best for cell in cells(results, "ece")] == [True, False]
    assert [cell.best for cell in cells(results, "auc")] == [False, True]


def test_values_that_print_alike_are_all_best_and_a_column_of_one_value_has_none() -> None:
    results = {"a": {"ece": 0.10001}, "b": {"ece": 0.10002}, "c": {"ece": 0.2}}
    assert [cell.best for cell in cells(results, "ece")] == [True, True, False]
    assert not any(cell.best for cell in cells({"a": {"auc": 0.9}, "b": {"auc": 0.9}}, "auc"))


def test_missing_values_are_said_to_be_missing_and_are_never_best() -> None:
    results = {"a": {"auc": math.nan}, "b": {"auc": None}, "c": {}, "d": {"auc": 0.4}, "e": {"auc": 0.3}}
    assert [cell.text for cell in cells(results, "auc")] == ["n/a", "n/a", "n/a", "40.00", "30.00"]
    assert [cell.best for cell in cells(results, "auc")] == [False, False, False, True, False]


def test_noise_mark_compares_each_ece_with_its_own_floor() -> None:
    results = {
        "a": {"ece": 0.03, "ece_floor_q95": 0.04},
        "b": {"ece": 0.03, "ece_floor_q95": 0.02},
        "c": {"ece": 0.01},
        "d": {"ece": None, "ece_floor_q95": 0.02},
    }
    assert [cell.in_noise for cell in cells(results, "ece")] == [True, False, False, False]
    assert not any(cell.best for cell in cells(results, "ece_floor_q95"))


def test_unknown_keys_are_shown_not_dropped() -> None:
    columns, rows = build_table({"a": {"ece": 0.1, "my_metric": 1.5}})
    assert [column.name for column in columns] == ["ece", "my_metric"]
    assert rows[0].cells[1].text == "1.5000"
