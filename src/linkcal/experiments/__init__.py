"""Runs: their settings, the work, and what they leave on disk."""

from linkcal.experiments.config import RunConfig
from linkcal.experiments.fitting_links import fitting_links
from linkcal.experiments.outputs import (
    ARTIFACT_FOLDER,
    check_output_folder,
    environment,
    file_record,
    to_json,
    write_outputs,
)
from linkcal.experiments.run import RunOutcome, Step, run_experiment
from linkcal.experiments.selection import CANDIDATES, select_calibrator

__all__ = [
    "ARTIFACT_FOLDER",
    "CANDIDATES",
    "RunConfig",
    "RunOutcome",
    "Step",
    "check_output_folder",
    "environment",
    "file_record",
    "fitting_links",
    "run_experiment",
    "select_calibrator",
    "to_json",
    "write_outputs",
]
