"""Links that a calibrator is fitted on: all of them, or a sample for those that train a network."""

from __future__ import annotations

import numpy as np

from linkcal._random import numpy_stream
from linkcal.calibrators import CALIBRATORS
from linkcal.features import LinkScores

__all__ = ["fitting_links"]


def fitting_links(name: str, scores: LinkScores, *, max_network_links: int | None, seed: int) -> LinkScores:
    """Links that a calibrator is to be fitted on.

    A temperature network is trained for thousands of passes over its links, so that a fit takes time in
    proportion to them (0.03 s a pass on 200,000 links), while its few hundred weights gain nothing from the
    millionth link. All other calibrators get every link.

    Parameters
    ----------
    name : str
        In ``linkcal.calibrators.CALIBRATORS``.
    scores : LinkScores
        With labels.
    max_network_links : int, optional
        Bound for calibrators that train a network; None sets none.
    seed : int
        The sample follows the stream ``"network-links"``, is the same for every calibrator, and keeps the
        share of links, to the nearest whole number.

    Returns
    -------
    LinkScores
        `scores` itself where it is not above the bound; else a sample in the order of `scores`.

    Examples
    --------
    >>> import torch
    >>> from linkcal.toggle import ToggledEmbeddings
    >>> embedding, logit, label = torch.zeros(8, 1), torch.zeros(8), torch.arange(8) % 4 == 0
    >>> toggled = ToggledEmbeddings(embedding, embedding, logit, logit, label, "naive")
    >>> scores = LinkScores(toggled, label=label.float())
    >>> fitting_links("in-n-out", scores, max_network_links=4, seed=0).label.sort().values.tolist()
    [0.0, 0.0, 0.0, 1.0]
    >>> len(fitting_links("platt", scores, max_network_links=4, seed=0))
    8
    """
    if not CALIBRATORS[name].trains_network or max_network_links is None or len(scores) <= max_network_links:
        return scores
    _, label = scores.to_arrays()
    rng = numpy_stream(seed, "network-links")
    links, others = rng.permutation(np.flatnonzero(label == 1)), rng.permutation(np.flatnonzero(label == 0))
    # At least one of each class that there is: a calibrator cannot be fitted on a single class.
    wanted = round(max_network_links * links.size / len(scores))
    wanted = min(max(wanted, min(links.size, 1)), max_network_links - min(others.size, 1))
    return scores.take(np.sort(np.concatenate([links[:wanted], others[: max_network_links - wanted]])))
