"""Link predictors: interface, GNNs, training, and the adapter for anyone's module."""

from linkcal.models.adapter import (
    AdaptedLinkPredictor,
    DecodeReturns,
    as_link_predictor,
    auxiliary_loss_of,
    check_link_predictor,
    link_embedding_of,
    logits_of,
    resolve_decode_returns,
    unwrap_link_predictor,
)
from linkcal.models.base import LinkPredictor
from linkcal.models.gcn import GCN
from linkcal.models.gin import GIN
from linkcal.models.sage import SAGE
from linkcal.models.training import (
    EpochReport,
    TrainingConfig,
    TrainingResult,
    train_link_predictor,
)
from linkcal.models.vgae import VGAE

__all__ = [
    "GCN",
    "GIN",
    "SAGE",
    "VGAE",
    "AdaptedLinkPredictor",
    "DecodeReturns",
    "EpochReport",
    "LinkPredictor",
    "TrainingConfig",
    "TrainingResult",
    "as_link_predictor",
    "auxiliary_loss_of",
    "check_link_predictor",
    "link_embedding_of",
    "logits_of",
    "resolve_decode_returns",
    "train_link_predictor",
    "unwrap_link_predictor",
]
