"""Runs: their settings, the work, and what they leave on disk."""

from linkcal.experiments.config import OF_PROTOCOL, RunConfig
from linkcal.experiments.graphs import load_graph, row_normalised, split_graph
from linkcal.experiments.outputs import (
    ARTIFACT_FOLDER,
    check_output_folder,
    environment,
    file_record,
    to_json,
    write_outputs,
)
from linkcal.experiments.presets import PresetFile, preset_options, read_preset, write_preset
from linkcal.experiments.protocols import PROTOCOLS, Protocol, SplitRule, find_protocol
from linkcal.experiments.run import RunOutcome, Step, run_experiment
from linkcal.experiments.search import (
    SAMPLERS,
    SEARCHED,
    SearchResult,
    SearchTrial,
    search_hyperparameters,
)
from linkcal.experiments.selection import CANDIDATES, select_calibrator

__all__ = [
    "ARTIFACT_FOLDER",
    "CANDIDATES",
    "OF_PROTOCOL",
    "PROTOCOLS",
    "SAMPLERS",
    "SEARCHED",
    "PresetFile",
    "Protocol",
    "RunConfig",
    "RunOutcome",
    "SearchResult",
    "SearchTrial",
    "SplitRule",
    "Step",
    "check_output_folder",
    "environment",
    "file_record",
    "find_protocol",
    "load_graph",
    "preset_options",
    "read_preset",
    "row_normalised",
    "run_experiment",
    "search_hyperparameters",
    "select_calibrator",
    "split_graph",
    "to_json",
    "write_outputs",
    "write_preset",
]
