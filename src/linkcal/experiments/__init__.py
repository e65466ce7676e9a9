"""Runs and sweeps: their settings, the work, and what they leave on disk."""

from linkcal.experiments.cell_metrics import remeasure_cell
from linkcal.experiments.cells import Cell, SweepPlan, TrainingJob, parse_seeds, settings_of, settings_suffix
from linkcal.experiments.config import OF_PROTOCOL, RunConfig
from linkcal.experiments.engines import ENGINES
from linkcal.experiments.estimate import JobEstimate, estimate_jobs, wall_seconds
from linkcal.experiments.fitting_links import fitting_links
from linkcal.experiments.graphs import load_graph, row_normalised, split_graph
from linkcal.experiments.outputs import (
    ARTIFACT_FOLDER,
    check_output_folder,
    environment,
    file_record,
    to_json,
    write_outputs,
)
from linkcal.experiments.predictions import MEASURED_PARTS
from linkcal.experiments.presets import PresetFile, preset_options, read_preset, write_preset
from linkcal.experiments.protocols import PROTOCOLS, Protocol, SplitRule, find_protocol
from linkcal.experiments.records import RECORD_COLUMNS, export_records, read_records
from linkcal.experiments.run import RunOutcome, run_experiment
from linkcal.experiments.search import (
    SAMPLERS,
    SEARCHED,
    SearchResult,
    SearchTrial,
    search_hyperparameters,
)
from linkcal.experiments.selection import CANDIDATES, select_calibrator
from linkcal.experiments.steps import Step
from linkcal.experiments.store import Store
from linkcal.experiments.sweep import pending_jobs, run_sweep
from linkcal.experiments.sweep_options import JobReport, SweepOptions, SweepResult

__all__ = [
    "ARTIFACT_FOLDER",
    "CANDIDATES",
    "ENGINES",
    "MEASURED_PARTS",
    "OF_PROTOCOL",
    "PROTOCOLS",
    "RECORD_COLUMNS",
    "SAMPLERS",
    "SEARCHED",
    "Cell",
    "JobEstimate",
    "JobReport",
    "PresetFile",
    "Protocol",
    "RunConfig",
    "RunOutcome",
    "SearchResult",
    "SearchTrial",
    "SplitRule",
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
    "find_protocol",
    "fitting_links",
    "load_graph",
    "parse_seeds",
    "pending_jobs",
    "preset_options",
    "read_preset",
    "read_records",
    "remeasure_cell",
    "row_normalised",
    "run_experiment",
    "run_sweep",
    "search_hyperparameters",
    "select_calibrator",
    "settings_of",
    "settings_suffix",
    "split_graph",
    "to_json",
    "wall_seconds",
    "write_outputs",
    "write_preset",
]
