"""A fitted link predictor on disk: weights, message graph, calibrators, evidence."""

from linkcal.artifact.layout import ARTIFACT_FORMAT_VERSION, Artifact, check_artifact_folder
from linkcal.artifact.loading import load_artifact
from linkcal.artifact.saving import save_artifact

__all__ = ["ARTIFACT_FORMAT_VERSION", "Artifact", "check_artifact_folder", "load_artifact", "save_artifact"]
