"""Errors answer in one line: name, what was expected, what came."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import linkcal
from linkcal import exceptions
from linkcal._core import validation as _validation
from linkcal.exceptions import InputError, LinkcalError

ROOT = Path(linkcal.__file__).parent

#: Said before `fit`, where nothing came that could be named.
_NOT_FITTED = "NotFittedError"
_ERRORS = {
    name
    for name in exceptions.__all__
    if issubclass(getattr(exceptions, name), LinkcalError) and name != _NOT_FITTED
}

#: What a message passes on: another error's text (which follows the rule itself), or its first half.
_PASSED_ON = {"error", "rule"}


#: These say what came in other words.
_OTHER_WORDS = {
    "x must be finite, {} values are not",
    "model.encode must take edge_weight to use it, {}'s does not",
    "edge_weight must be None for method 'khop', whose subgraphs carry no weights; use method='naive'",
}


def _text(node: ast.expr) -> str | None:
    """The message with ``{}`` for what is filled in; None if it is not written where it is raised."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_part(part) for part in node.values)
    return None


def _part(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    filled = ast.unparse(node.value) if isinstance(node, ast.FormattedValue) else ""
    return "{must got}" if filled in _PASSED_ON else "{}"


def _messages(path: Path) -> list[tuple[str, int, str | None]]:
    """Error, line and text of every message of linkcal's own errors in a file."""
    return [
        (node.func.id, node.lineno, _text(node.args[0]))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in _ERRORS | {_NOT_FITTED}
        and node.args
    ]


def _follows_the_rule(error: str, text: str) -> bool:
    wanted = r"^\S.* must be fitted first, call fit$" if error == _NOT_FITTED else r"\bmust\b.*\bgot\b"
    return "\n" not in text and re.search(wanted, text) is not None


FILES = sorted(path for path in ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_messages_say_what_was_expected_and_what_came(path):
    wrong = [
        (error, line, text)
        for error, line, text in _messages(path)
        if text is not None and text not in _OTHER_WORDS and not _follows_the_rule(error, text)
    ]
    assert wrong == []


def test_a_message_against_the_rule_would_be_seen(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("raise InputError(f'{name} is wrong')\nraise InputError(f'x must be 1, got {x}')\n")
    assert [_follows_the_rule(error, text) for error, _, text in _messages(bad)] == [False, True]


def test_the_walk_finds_the_messages():
    found = [text for path in FILES for _, _, text in _messages(path)]
    assert len(found) > 200
    assert sum(text is None for text in found) <= 2


#: A bad call of every helper, and what its message must say.
BAD_CALLS = {
    "check_binary_labels": (([0, 2],), "y_true must hold only 0 and 1, got 2.0"),
    "check_base_rate": (("dense",), "base_rate must be a number in (0, 1) or 'density', got 'dense'"),
    "check_choice": (("b", "name", ["a", "c"]), "name must be one of a, c; got 'b'"),
    "check_device": (("gpu",), "device must be auto, cpu, cuda or cuda:<index>, got 'gpu'"),
    "check_edge_index": ((torch.zeros(3, 2), None), "edge_index must have shape [2, L], got [3, 2]"),
    "check_finite": ((np.array([1.0, np.nan]), "x"), "x must be finite, got 1 NaN or infinite value"),
    "check_flag": (("no", "center"), "center must be True or False, got 'no'"),
    "check_fraction": ((1.5, "fdr"), "fdr must be in (0, 1), got 1.5"),
    "check_no_self_pairs": (
        (torch.tensor([[0, 2], [1, 2]]),),
        "edge_label_index must join two different nodes, got (2, 2)",
    ),
    "check_positive_float": ((0.0, "lr"), "lr must be a finite number > 0, got 0.0"),
    "check_positive_int": ((0, "k"), "k must be a whole number >= 1, got 0"),
    "check_probabilities": (([0.5, 1.2],), "y_prob must be in [0, 1], got 1.2"),
    "check_sample_weight": (([1.0], 2), "sample_weight must have one weight per link, 2, got 1"),
    "check_scores": ((np.zeros((2, 3)),), "score must have shape (n,), got (2, 3)"),
}


def test_every_helper_has_a_bad_call():
    assert {name for name in _validation.__all__ if name.startswith("check_")} == set(BAD_CALLS)


@pytest.mark.parametrize("helper", BAD_CALLS)
def test_helpers_answer_in_one_line(helper):
    arguments, message = BAD_CALLS[helper]
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
        getattr(_validation, helper)(*arguments)
