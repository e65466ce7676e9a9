"""Features along their principal directions: few numbers in place of a vocabulary."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.utils.extmath import randomized_svd
from torch import Tensor

from linkcal._validation import to_float64

__all__ = ["principal_features"]


def principal_features(x: Tensor, num_directions: int) -> Tensor:
    """Coordinates [N, k] of feature rows along their k strongest directions, scaled together to deviation 1.

    Parameters
    ----------
    x : Tensor [N, F]
    num_directions : int
        k, at most F. Columns beyond min(N, F) are 0.

    Returns
    -------
    Tensor [N, k]
        Dtype and device of `x`. The same `x` gives the same coordinates: scikit-learn's randomised solver
        starts from a fixed seed.

    Notes
    -----
    ``X V_k / std(X V_k)`` with the truncated singular value decomposition ``X = U S V^T`` (latent semantic
    analysis): features are not centred, so that absent words stay 0.

    Examples
    --------
    >>> import torch
    >>> x = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> z = principal_features(x, 2)
    >>> z.shape, torch.allclose(z[0], z[1]), abs(float(z[0] @ z[2])) < 1e-5
    (torch.Size([3, 2]), True, True)
    """
    rows = to_float64(x)
    rank = min(num_directions, *rows.shape)
    out = np.zeros((rows.shape[0], num_directions))
    left, strength, _ = randomized_svd(rows, rank, random_state=0)
    out[:, :rank] = left * strength
    # Without features that differ from 0 there is nothing to scale.
    deviation = out[:, :rank].std()
    if deviation > 0.0:
        out /= deviation
    return torch.from_numpy(out).to(x)
