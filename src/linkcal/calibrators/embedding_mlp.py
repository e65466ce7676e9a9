"""The paper's ablation: a temperature from the link embedding alone."""

from __future__ import annotations

from typing import ClassVar, final

from linkcal.calibrators._net_calibrator import NetCalibrator
from linkcal.calibrators.base import FloatArray, LinkFeatures

__all__ = ["EmbeddingMLP"]


@final
class EmbeddingMLP(NetCalibrator):
    """Temperature of each link from its embedding h: ``p = sigmoid(s / T)``, ``T = softplus(MLP(h))``.

    The ablation of :class:`InNOut` in the paper: one network, which sees neither the sign of the logit nor
    the embedding with the edge. Loss and training are those of :class:`InNOut`, as are all parameters
    except `gamma`. Columns 1.. of X hold h.

    Parameters
    ----------
    hidden_channels : int, default=16
        H, width of the hidden ReLU layer.
    ece_weights : sequence of float, default=(0.0, 1.0, 10.0)
        Candidates for lambda, the weight of the ECE term.
    n_bins : int, default=15
        Equal-width bins of the ECE term and of the ECE that chooses lambda.
    learning_rate : float, default=1e-4
    weight_decay : float, default=5e-8
    max_iter : int, default=5000
        Most epochs.
    early_stopping : bool, default=True
        End a network when its held-out loss has not fallen for `patience` epochs.
    patience : int, default=500
    n_folds : int, optional
        Folds of the cross-validation that is used where no validation links are given.
    random_state : int, Generator, RandomState or None, default=0

    Attributes
    ----------
    hidden_weights_ : ndarray of shape (1, H, k + 1)
        First layer, biases in the last column.
    output_weights_ : ndarray of shape (1, H + 1)
        Second layer, bias last.
    ece_weight_, n_iter_, converged_, loss_curve_, seed_
        As in :class:`InNOut`.
    classes_ : ndarray of shape (2,)
    n_features_in_ : int

    Warns
    -----
    BaseRateWarning
        If mean p and the share of links differ clearly after the fit: a temperature cannot repair that.

    References
    ----------
    arXiv 2403.04605 (the paper), ablation study.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> h = rng.normal(size=(200, 4))
    >>> s = 3 * h.sum(axis=1)
    >>> y = rng.random(200) < 1 / (1 + np.exp(-s / 3))
    >>> calibrator = EmbeddingMLP(max_iter=50, learning_rate=0.01).fit(np.column_stack((s, h)), y)
    >>> calibrator.temperature([[0.5, 0.1, 0.1, 0.1, 0.1]]).shape
    (1,)
    """

    link_features: ClassVar[LinkFeatures] = "embedding"
    _heads: ClassVar[int] = 1

    def _inputs(self, X: FloatArray) -> FloatArray:
        return X[:, 1:]
