"""Runs and sweeps: their settings, the work, and what they leave on disk."""

from linkcal.experiments.calibration_stage import remeasure_cell
from linkcal.experiments.cells import Cell, SweepPlan, TrainingJob, parse_seeds, settings_of, settings_suffix
from linkcal.experiments.config import RunConfig
from linkcal.experiments.engines import ENGINES
from linkcal.experiments.estimate import JobEstimate, estimate_jobs, wall_seconds
from linkcal.experiments.outputs import (
    ARTIFACT_FOLDER,
    check_output_folder,
    environment,
    file_record,
    to_json,
    write_outputs,
)
from linkcal.experiments.records import RECORD_COLUMNS, export_records, read_records
from linkcal.experiments.run import RunOutcome, Step, load_run_input, run_experiment
from linkcal.experiments.selection import CANDIDATES, select_calibrator
from linkcal.experiments.store import Store
from linkcal.experiments.sweep import JobReport, SweepOptions, SweepResult, pending_jobs, run_sweep

__all__ = [
    "ARTIFACT_FOLDER",
    "CANDIDATES",
    "ENGINES",
    "RECORD_COLUMNS",
    "Cell",
    "JobEstimate",
    "JobReport",
    "RunConfig",
    "RunOutcome",
    "Step",
    "Store",
    "SweepOptions",
    "SweepPlan",
    "SweepResult",
    "TrainingJob",
    "check_output_folder",
    "environment",
    "estimate_jobs",
    "export_records",
    "file_record",
    "load_run_input",
    "parse_seeds",
    "pending_jobs",
    "read_records",
    "remeasure_cell",
    "run_experiment",
    "run_sweep",
    "select_calibrator",
    "settings_of",
    "settings_suffix",
    "to_json",
    "wall_seconds",
    "write_outputs",
]
