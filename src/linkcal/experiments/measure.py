"""Seconds and peak memory of a stage of work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Usage", "measured"]

_CLEAR = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


@dataclass
class Usage:
    """What a stage took.

    Parameters
    ----------
    seconds : dict of str to float
        Wall-clock time by step, and ``total``.
    peak_memory_mib : float or None
        Largest resident memory of the process while the stage ran (the process holds libraries and cached
        data sets beside the stage's own arrays); None where the system does not tell.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    peak_memory_mib: float | None = None

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Add the time of a block to a step."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {"seconds": self.seconds, "peak_memory_mib": self.peak_memory_mib}


@contextmanager
def measured() -> Iterator[Usage]:
    """Measure a block; peak memory is read at its end.

    Examples
    --------
    >>> with measured() as usage, usage.step("sum"):
    ...     _ = sum(range(10))
    >>> sorted(usage.seconds)
    ['sum', 'total']
    """
    usage = Usage()
    resettable = _reset_peak()
    start = time.perf_counter()
    try:
        yield usage
    finally:
        usage.seconds["total"] = time.perf_counter() - start
        usage.peak_memory_mib = _peak() if resettable else None


def _reset_peak() -> bool:
    """Let the kernel forget the peak so far; False where it cannot."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True


def _peak() -> float | None:
    for line in _STATUS.read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return None
