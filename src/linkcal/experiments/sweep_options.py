"""How a sweep runs, and what it tells: options, the report of a training, the counts at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from linkcal._validation import check_choice, check_device, check_positive_int
from linkcal.data import Graph, LinkSplit
from linkcal.data.raw import find_data_root
from linkcal.exceptions import InputError
from linkcal.experiments.cells import TrainingJob
from linkcal.experiments.engines import ENGINES

__all__ = ["JobReport", "SweepOptions", "SweepResult"]


@dataclass(frozen=True)
class SweepOptions:
    """How a sweep runs; nothing here changes its numbers, but for the device.

    Parameters
    ----------
    jobs : int
        Processes.
    engine : {"local", "ray"}
    device : str
        Where models are trained and links scored. Another kind of device rounds otherwise; ``config.json`` of
        the training names it.
    data_root : str, optional
        As for :func:`linkcal.data.load_dataset`.
    graphs : mapping of str to Graph or LinkSplit, optional
        Own graphs, taken before named data sets.

    Raises
    ------
    InputError
        If `jobs` is no whole number above 0, the engine is unknown, or the device or the folder is not there
        (on another machine of a Ray cluster it may be).
    """

    jobs: int = 1
    engine: str = "local"
    device: str = "cpu"
    data_root: str | None = None
    graphs: Mapping[str, Graph | LinkSplit] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_positive_int(self.jobs, "jobs")
        check_choice(self.engine, "engine", ENGINES)
        # On other machines of a cluster there may be what is not here.
        if self.engine == "local":
            check_device(self.device)
            if self.data_root is not None and not Path(self.data_root).is_dir():
                raise InputError(f"data_root must be an existing folder, got {self.data_root!r}")

    def check_data_root(self, datasets: Iterable[str]) -> None:
        """Check the folder of the raw data once, before each training of named data sets would fail on it.

        Parameters
        ----------
        datasets : iterable of str

        Raises
        ------
        DataNotFoundError
            If the folder that ``LINKCAL_DATA_ROOT`` names does not exist, or no cache folder can be made.
        """
        read = [name for name in datasets if name not in self.graphs and name != "simulated"]
        if read and self.engine == "local":
            find_data_root(self.data_root)


@dataclass(frozen=True)
class JobReport:
    """What became of a training and its cells.

    Parameters
    ----------
    job : TrainingJob
    cells_done, cells_failed : int
        Of those that were missing when the job began.
    errors : tuple of str
        One line each.
    seconds : float
    busy : bool
        Another process works on it: nothing was done.
    """

    job: TrainingJob
    cells_done: int = 0
    cells_failed: int = 0
    errors: tuple[str, ...] = ()
    seconds: float = 0.0
    busy: bool = False


@dataclass(frozen=True)
class SweepResult:
    """Counts of a finished sweep.

    Parameters
    ----------
    cells : int
        In the plan.
    found, done, failed : int
        Cells that were there, that were made, and that could not be made.
    errors : tuple of str
    """

    cells: int
    found: int
    done: int
    failed: int
    errors: tuple[str, ...]
