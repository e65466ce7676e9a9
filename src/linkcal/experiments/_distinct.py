"""Warnings that every calibrator's measurement repeats, said once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["distinct_warnings"]


@contextmanager
def distinct_warnings() -> Iterator[None]:
    """Hold the block's warnings back and give each different one once, when it ends.

    A filter that makes errors of them does so at once.

    Examples
    --------
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     with distinct_warnings():
    ...         for k in (20, 50, 20, 50):
    ...             warnings.warn(f"fewer than {k}")
    >>> [str(one.message) for one in said]
    ['fewer than 20', 'fewer than 50']
    """
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            yield
    finally:  # also what was said before an error
        different = {(one.category, str(one.message)): one for one in reversed(caught)}
        for one in reversed(different.values()):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
