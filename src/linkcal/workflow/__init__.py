"""Runs and sweeps: their settings, the work, and what they leave on disk."""

from __future__ import annotations

from linkcal.workflow.config import (
    OF_PROTOCOL,
    PROTOCOLS,
    PresetFile,
    Protocol,
    RunConfig,
    SplitRule,
    find_protocol,
    preset_options,
    read_preset,
    write_preset,
)
from linkcal.workflow.outputs import (
    ARTIFACT_FOLDER,
    check_output_folder,
    environment,
    file_record,
    to_json,
    write_outputs,
)
from linkcal.workflow.run import CANDIDATES, RunOutcome, run_experiment, select_calibrator
from linkcal.workflow.steps import Step, fitting_links, load_graph, row_normalised, split_graph

__all__ = [
    "ARTIFACT_FOLDER",
    "CANDIDATES",
    "OF_PROTOCOL",
    "PROTOCOLS",
    "PresetFile",
    "Protocol",
    "RunConfig",
    "RunOutcome",
    "SplitRule",
    "Step",
    "check_output_folder",
    "environment",
    "file_record",
    "find_protocol",
    "fitting_links",
    "load_graph",
    "preset_options",
    "read_preset",
    "row_normalised",
    "run_experiment",
    "select_calibrator",
    "split_graph",
    "to_json",
    "write_outputs",
    "write_preset",
]
