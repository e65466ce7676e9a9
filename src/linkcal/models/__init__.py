"""Link predictors: interface, GNNs, training, and the adapter for anyone's module."""

from __future__ import annotations

from linkcal.models.adapter import AdaptedLinkPredictor, as_link_predictor, unwrap_link_predictor
from linkcal.models.base import (
    TARGET_LINK_STATES,
    DecodeReturns,
    GraphModel,
    LinkPredictor,
    PairPredictor,
    TargetLinkState,
    auxiliary_loss_of,
    check_link_predictor,
    link_embedding_of,
    logits_of,
    resolve_decode_returns,
)
from linkcal.models.gnn import GCN, GIN, SAGE, VGAE
from linkcal.models.io import load_model, save_model
from linkcal.models.peg import PEG, PEG_DECODERS, PEGConv
from linkcal.models.registry import (
    MODELS,
    NODE_EMBEDDING_CHANNELS,
    ModelSpec,
    Preset,
    make_model,
    make_training_config,
)
from linkcal.models.seal import SEAL
from linkcal.models.training import EpochReport, TrainingConfig, TrainingResult, train_link_predictor

__all__ = [
    "GCN",
    "GIN",
    "MODELS",
    "NODE_EMBEDDING_CHANNELS",
    "PEG",
    "PEG_DECODERS",
    "SAGE",
    "SEAL",
    "TARGET_LINK_STATES",
    "VGAE",
    "AdaptedLinkPredictor",
    "DecodeReturns",
    "EpochReport",
    "GraphModel",
    "LinkPredictor",
    "ModelSpec",
    "PEGConv",
    "PairPredictor",
    "Preset",
    "TargetLinkState",
    "TrainingConfig",
    "TrainingResult",
    "as_link_predictor",
    "auxiliary_loss_of",
    "check_link_predictor",
    "link_embedding_of",
    "load_model",
    "logits_of",
    "make_model",
    "make_training_config",
    "resolve_decode_returns",
    "save_model",
    "train_link_predictor",
    "unwrap_link_predictor",
]
