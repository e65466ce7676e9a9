"""Calibration data and fast instances that several test files share."""

import numpy as np
from scipy.special import expit

from linkcal.calibrators import (
    CALIBRATORS,
    Calibrator,
    Histogram,
    InNOut,
    Isotonic,
    StructuralCalibrator,
    make_calibrator,
)

NET_NAMES = ("embedding-mlp", "in-n-out")
FEATURE_NAMES = (*NET_NAMES, "in-n-out-plus", "structure-only")
SCORE_ONLY = tuple(name for name in CALIBRATORS if name not in FEATURE_NAMES)

#: Settings with which a network calibrator fits in a few hundredths of a second.
FAST_NET = {"max_iter": 30, "hidden_channels": 4, "learning_rate": 0.01}


def fast(name: str) -> Calibrator:
    """Small instance of a calibrator by its registered name."""
    return make_calibrator(name, **(FAST_NET if name in NET_NAMES else {}))


#: Every calibrator, and options that change what it computes.
SETTINGS = {
    **{name: fast(name) for name in CALIBRATORS},
    "histogram, textbook": Histogram(smooth=False),
    "isotonic, textbook": Isotonic(smooth=False),
    "in-n-out, doubled": InNOut(scaling="multiply-doubled", **FAST_NET),
    "in-n-out-plus, logit": StructuralCalibrator(features="logit"),
}


def overconfident(n: int = 400, k: int = 3, seed: int = 0, scale: float = 2.5):
    """Links whose logit is `scale` times the true one: X (n, 1 + k), y (n,)."""
    rng = np.random.default_rng(seed)
    true = rng.normal(0.3, 1.5, n)
    y = (rng.random(n) < expit(true)).astype(int)
    return np.column_stack((scale * true, rng.normal(size=(n, k)))), y


def groups(*rows: tuple[float, int, int]):
    """X (n, 1), y (n,) from groups (logit, links, positives)."""
    logit = np.concatenate([np.full(n, s) for s, n, _ in rows])
    label = np.concatenate([np.arange(n) < positives for _, n, positives in rows])
    return logit[:, None], label.astype(int)
