"""From settings to a fitted folder: load, split, train, score, fit, measure, write."""

from linkcal._core.files import file_record, to_json
from linkcal.report._page import ARTIFACT_FOLDER
from linkcal.workflow._run import RunOutcome, check_output_folder, environment, run_experiment, write_outputs
from linkcal.workflow._settings import PresetFile, RunConfig, preset_options, read_preset, write_preset
from linkcal.workflow._steps import Step, load_graph, split_graph

__all__ = [
    "ARTIFACT_FOLDER", "PresetFile", "RunConfig", "RunOutcome", "Step", "check_output_folder", "environment",
    "file_record", "load_graph", "preset_options", "read_preset", "run_experiment", "split_graph", "to_json",
    "write_outputs", "write_preset",
]  # fmt: skip
