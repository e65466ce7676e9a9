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

__all__ = [
    "AdaptedLinkPredictor",
    "DecodeReturns",
    "LinkPredictor",
    "as_link_predictor",
    "auxiliary_loss_of",
    "check_link_predictor",
    "link_embedding_of",
    "logits_of",
    "resolve_decode_returns",
    "unwrap_link_predictor",
]
