"""Messages stay short whatever they quote."""

import pickle

import pytest

from linkcal.exceptions import DataNotFoundError, InputError, LinkcalWarning, NotFittedError


@pytest.mark.parametrize("kind", [InputError, NotFittedError, DataNotFoundError, LinkcalWarning])
def test_long_messages_keep_both_ends(kind):
    error = kind("expected a number, got " + "9" * 5_000_000 + " in line 7")
    text = str(error)
    assert len(text) < 500
    assert text.startswith("expected a number, got 999")
    assert text.endswith("999 in line 7")
    assert "(4,999,633 characters left out)" in text
    assert str(pickle.loads(pickle.dumps(error))) == text
    assert str(kind("short")) == "short"
