"""Link predictors: interface, GNNs, training, and the adapter for anyone's module."""

from linkcal.models.adapter import AdaptedLinkPredictor, DecodeReturns, as_link_predictor
from linkcal.models.base import GraphModel, LinkPredictor, PairPredictor, TargetLinkState
from linkcal.models.gnn import GCN, GIN, SAGE, VGAE
from linkcal.models.io import load_model, save_model
from linkcal.models.peg import PEG
from linkcal.models.registry import MODELS, NODE_EMBEDDING_CHANNELS, ModelSpec, Preset, make_model
from linkcal.models.seal import SEAL
from linkcal.models.training import EpochReport, TrainingConfig, TrainingResult, train_link_predictor

__all__ = [
    "GCN", "GIN", "MODELS", "NODE_EMBEDDING_CHANNELS", "PEG", "SAGE", "SEAL", "VGAE",
    "AdaptedLinkPredictor", "DecodeReturns", "EpochReport", "GraphModel", "LinkPredictor", "ModelSpec",
    "PairPredictor", "Preset", "TargetLinkState", "TrainingConfig", "TrainingResult",
    "as_link_predictor", "load_model", "make_model", "save_model",
    "train_link_predictor",
]  # fmt: skip
