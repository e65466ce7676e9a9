"""Seconds and peak memory of a stage of work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
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
    processor_seconds : dict of str to float
        Processor time of all threads, by the same names. Less than the wall-clock time of one thread where
        other programs kept it waiting.
    peak_memory_mib : float or None
        Largest resident memory of the process while the stage ran (the process holds libraries and cached
        data sets beside the stage's own arrays); None where the system does not tell.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    processor_seconds: dict[str, float] = field(default_factory=dict)
    peak_memory_mib: float | None = None

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Add the time of a block to a step."""
        start = _clocks()
        try:
            yield
        finally:
            for seconds, begun, now in zip(self._both, start, _clocks(), strict=True):
                seconds[name] = seconds.get(name, 0.0) + now - begun

    def share(self, count: int) -> None:
        """Leave one of `count` equal parts: of cells that were made together, each took its share."""
        for seconds in self._both:
            seconds.update({name: value / count for name, value in seconds.items()})

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    @property
    def _both(self) -> tuple[dict[str, float], dict[str, float]]:
        return self.seconds, self.processor_seconds


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
    try:
        with usage.step("total"):
            yield usage
    finally:
        usage.peak_memory_mib = _peak() if resettable else None


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


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
