"""Link predictors: interface, GNNs, training, and the adapter for anyone's module."""

from linkcal.models.adapter import AdaptedLinkPredictor, as_link_predictor, unwrap_link_predictor
from linkcal.models.base import OWN_EDGE_STATES, GraphModel, LinkPredictor, OwnEdgeState, PairPredictor
from linkcal.models.declared import DecodeReturns, check_link_predictor, resolve_decode_returns
from linkcal.models.gcn import GCN
from linkcal.models.gin import GIN
from linkcal.models.io import load_model, save_model
from linkcal.models.outputs import auxiliary_loss_of, link_embedding_of, logits_of
from linkcal.models.peg import PEG, PEG_DECODERS, PEGConv
from linkcal.models.registry import (
    MODELS,
    NODE_EMBEDDING_CHANNELS,
    ModelSpec,
    Preset,
    make_model,
    make_training_config,
)
from linkcal.models.sage import SAGE
from linkcal.models.seal import SEAL
from linkcal.models.training import train_link_predictor
from linkcal.models.training_config import EpochReport, TrainingConfig, TrainingResult
from linkcal.models.vgae import VGAE

__all__ = [
    "GCN",
    "GIN",
    "MODELS",
    "NODE_EMBEDDING_CHANNELS",
    "OWN_EDGE_STATES",
    "PEG",
    "PEG_DECODERS",
    "SAGE",
    "SEAL",
    "VGAE",
    "AdaptedLinkPredictor",
    "DecodeReturns",
    "EpochReport",
    "GraphModel",
    "LinkPredictor",
    "ModelSpec",
    "OwnEdgeState",
    "PEGConv",
    "PairPredictor",
    "Preset",
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
