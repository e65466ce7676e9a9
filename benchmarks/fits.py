"""Speed of fitting calibrators and of predicting with them."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
import torch
from _cells import Trained, TrainedCase, fitted
from _harness import Point, Row, taking_turns
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from linkcal.calibrators import CALIBRATORS, InNOut, StructuralCalibrator, make_calibrator
from linkcal.exceptions import LinkcalWarning


class CalibratorSpeed(TrainedCase):
    """Seconds of a fit to the validation links and of a million predictions, for every calibrator."""

    name = "calibrator-speed"
    title = "Seconds of the calibrators"
    axes = {"dataset": ("pubmed",), "model": ("gcn",), "seed": (0,), "calibrator": tuple(CALIBRATORS)}
    settings = {"predictions": 1_000_000, "repeats": 5}
    quick = {"calibrator": ("platt", "in-n-out-plus"), "predictions": 3_000, "repeats": 1}

    def measure(self, point: Point, made: Trained) -> list[Row]:
        val, calibrator = made.scores("val"), make_calibrator(point.calibrator)
        X, y = val.to_arrays(calibrator.link_features)
        many = X[np.resize(np.arange(len(X)), point.predictions)]
        works: dict[str, Any] = {"fit": partial(fitted, calibrator, val)}
        works["predict"] = partial(fitted(calibrator, val).predict_proba, many)
        if isinstance(calibrator, StructuralCalibrator):
            X_base, y_base = made.scores("train").to_arrays("structural")
            base = {"X_base": X_base, "y_base": y_base}
            works["stacked fit"] = partial(fitted, calibrator, val, **base)
            works["stacked predict"] = partial(fitted(calibrator, val, **base).predict_proba, many)
        measured = taking_turns(works, point.repeats)
        sizes = {name: point.predictions if "predict" in name else len(y) for name in works}
        return [
            {"what": name, "links": sizes[name], "seconds": seconds, "peak MiB": peak}
            for name, (seconds, peak) in measured.items()
        ]


class PlainNetwork(torch.nn.Module):
    """Temperature s / T from one of two networks, by the predicted class: In-n-Out as the paper has it."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.negative, self.positive = (
            torch.nn.Sequential(torch.nn.Linear(width, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 1))
            for _ in range(2)
        )

    def forward(self, logit: Tensor, inputs: Tensor) -> Tensor:
        raw = torch.where(logit > 0, self.positive(inputs)[:, 0], self.negative(inputs)[:, 0])
        return logit / softplus(raw)


def plain_loss(z: Tensor, label: Tensor, ece_weight: float, n_bins: int) -> Tensor:
    """``L_NLL + L_Cal + lambda L_ECE``."""
    p = torch.sigmoid(z)
    nll, cal = binary_cross_entropy_with_logits(z, label), -((2 * label - 1) * p).mean()
    ece = torch.zeros((), dtype=z.dtype)
    for b in range(n_bins):
        inside = (p > b / n_bins) & (p <= (b + 1) / n_bins)
        ece = ece + (label[inside] - p[inside]).sum().abs() / len(label)
    return nll + cal + ece_weight * ece


class NetworkSpeed(TrainedCase):
    """Fitting In-n-Out, beside a plain PyTorch loop written as the paper describes it.

    One network on the training links, equally many epochs of full-batch Adam from other first weights, so
    that losses agree only roughly. The default fit (several networks, early stopping) is timed once.
    """

    name = "in-n-out-speed"
    title = "Fitting In-n-Out"
    threads = 2
    axes = {"dataset": ("cora",), "model": ("vgae",), "seed": (0,)}
    settings = {"epochs": 100, "ece_weight": 1.0, "repeats": 3}
    quick = {"epochs": 5, "repeats": 1}

    def measure(self, point: Point, made: Trained) -> list[Row]:
        X, y = made.scores("train").to_arrays(InNOut.link_features)
        one = InNOut(ece_weights=(point.ece_weight,), max_iter=point.epochs, early_stopping=False)
        whole = InNOut(max_iter=point.epochs) if point.quick else InNOut()
        losses = {}

        def plain() -> None:
            torch.manual_seed(0)
            network = PlainNetwork(X.shape[1] - 1, one.hidden_channels)
            adam = torch.optim.Adam(network.parameters(), lr=one.learning_rate, weight_decay=one.weight_decay)
            logit, inputs, label = (torch.as_tensor(a).float() for a in (X[:, 0], X[:, 1:], y))
            for _ in range(point.epochs):
                adam.zero_grad()
                loss = plain_loss(network(logit, inputs), label, point.ece_weight, one.n_bins)
                loss.backward()
                adam.step()
            losses["plain loop"] = float(loss.detach())

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LinkcalWarning)
            measured = taking_turns({"plain loop": plain, "linkcal": lambda: one.fit(X, y)}, point.repeats)
            measured |= taking_turns({"default fit": lambda: whole.fit(X, y)}, 0)
        z = torch.as_tensor(one.decision_function(X))
        losses["linkcal"] = float(plain_loss(z, torch.as_tensor(y).double(), point.ece_weight, one.n_bins))
        return [
            {"method": name, "seconds": seconds, "peak MiB": peak, "loss": losses.get(name)}
            | {"times plain": measured["plain loop"][0] / seconds if name in losses else None}
            for name, (seconds, peak) in measured.items()
        ]
