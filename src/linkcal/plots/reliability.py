"""Reliability diagrams: what was predicted against what happened, with the noise a calibrated predictor has.

matplotlib is imported when the first figure is drawn, and only its object-oriented interface is used: no
global state, no window, no changed settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from linkcal.exceptions import InputError
from linkcal.metrics import ReliabilityCurve, reliability_curve
from linkcal.plots import _style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.container import BarContainer
    from matplotlib.lines import Line2D

__all__ = ["ReliabilityArtists", "plot_counts", "plot_reliability"]

# Bars of equal-mass bins can have no width at all (a single value); this keeps them visible.
_MIN_WIDTH = 0.012


class ReliabilityArtists(NamedTuple):
    """What :func:`plot_reliability` drew, to restyle it; `band` is None without a band.

    Parameters
    ----------
    axes : matplotlib Axes
    diagonal : Line2D
        Where calibrated predictions lie.
    line : Line2D
        The curve.
    inside, outside : PathCollection
        Its points inside and outside the noise band.
    band : BarContainer or None
    """

    axes: Axes
    diagonal: Line2D
    line: Line2D
    inside: PathCollection
    outside: PathCollection
    band: BarContainer | None


def _as_curve(data: Any, options: Mapping[str, Any]) -> ReliabilityCurve:
    if isinstance(data, ReliabilityCurve):
        if options:
            raise InputError(
                f"data must be (y_true, y_prob) for {', '.join(options)} to apply, got a computed curve"
            )
        return data
    if not isinstance(data, tuple) or len(data) != 2:
        raise InputError(f"data must be a ReliabilityCurve or (y_true, y_prob), got {type(data).__name__}")
    return reliability_curve(*data, **options)


def _bars(curve: ReliabilityCurve) -> tuple[Any, Any]:
    """Centres and widths (B,) of the bins."""
    return (curve.lower + curve.upper) / 2, np.maximum(curve.upper - curve.lower, _MIN_WIDTH)


def _new_axes() -> Axes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.5, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def plot_reliability(
    data: ReliabilityCurve | tuple[Any, Any],
    ax: Axes | None = None,
    *,
    band: bool = True,
    level: float = 0.95,
    axis_labels: bool = True,
    **options: Any,
) -> ReliabilityArtists:
    """Draw mean predicted probability against observed frequency, one point for each bin.

    Points on the diagonal are calibrated; below it the predictor promises too much. A point inside the grey
    band is where a perfectly calibrated predictor would put it with probability `level` given as few links as
    the bin holds; only points outside are evidence.

    Parameters
    ----------
    data : ReliabilityCurve or tuple (y_true, y_prob)
        The curve, or what to compute it from.
    ax : matplotlib Axes, optional
        Where to draw; a new figure without it (``artists.axes.figure``).
    band : bool
        Whether to draw the noise band and to mark the points outside it.
    level : float in (0, 1)
        Probability of the band, bin by bin.
    axis_labels : bool
        Whether to name the axes.
    **options
        `n_bins`, `variant`, `strategy`, `sample_weight` of :func:`linkcal.metrics.reliability_curve`, if
        `data` is not a curve.

    Returns
    -------
    ReliabilityArtists
        The axes and everything drawn on it.

    Raises
    ------
    InputError
        If `data` or an option is wrong.

    Examples
    --------
    >>> artists = plot_reliability(([0, 1, 1, 1], [0.2, 0.3, 0.8, 0.9]), n_bins=2)
    >>> artists.line.get_xydata().round(2).tolist()
    [[0.25, 0.5], [0.85, 1.0]]
    """
    curve = _as_curve(data, options)
    lower, upper = curve.null_band(level)
    # Without a band no point is called an outlier. The tolerance forgives rounding in frequency and quantile.
    outlier = ((curve.frequency < lower - 1e-9) | (curve.frequency > upper + 1e-9)) & band
    axes = _new_axes() if ax is None else ax
    bars = None
    if band:
        centre, width = _bars(curve)
        bars = axes.bar(
            centre, np.maximum(upper - lower, 0.008), width, bottom=lower, color=_style.BAND, zorder=1
        )
    (diagonal,) = axes.plot([0, 1], [0, 1], color=_style.DIAGONAL, lw=1.0, ls=(0, (4, 3)), zorder=2)
    (line,) = axes.plot(curve.mean_prob, curve.frequency, color=_style.LINE, lw=1.2, zorder=3)
    inside = axes.scatter(
        curve.mean_prob[~outlier], curve.frequency[~outlier],
        s=20, c=_style.INSIDE, edgecolors="white", linewidths=0.6, zorder=4,
    )  # fmt: skip
    outside = axes.scatter(
        curve.mean_prob[outlier], curve.frequency[outlier],
        s=26, c=_style.OUTSIDE, marker="D", edgecolors="white", linewidths=0.6, zorder=4,
    )  # fmt: skip
    _dress(axes, curve, axis_labels=axis_labels)
    return ReliabilityArtists(axes, diagonal, line, inside, outside, bars)


def _dress(axes: Axes, curve: ReliabilityCurve, *, axis_labels: bool) -> None:
    ticks = [0.0, 0.25, 0.5, 0.75, 1.0]
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xticks=ticks, yticks=ticks)
    axes.set_xticklabels(["0", "", "0.5", "", "1"])
    axes.set_yticklabels(["0", "", "0.5", "", "1"])
    axes.tick_params(colors=_style.TEXT, labelsize=8, length=3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if axis_labels:
        positive = curve.variant == "positive"
        axes.set_xlabel("Mean predicted probability" if positive else "Mean confidence")
        axes.set_ylabel("Observed share of links" if positive else "Share of right predictions")


def plot_counts(curve: ReliabilityCurve, ax: Axes) -> BarContainer:
    """Draw the share of all links (by weight) that each bin holds, for the strip below a diagram.

    Parameters
    ----------
    curve : ReliabilityCurve
    ax : matplotlib Axes

    Returns
    -------
    BarContainer
        One bar for each occupied bin.
    """
    centre, width = _bars(curve)
    bars = ax.bar(centre, curve.weight / curve.weight.sum(), width * 0.92, color=_style.STRIP)
    ax.set(xlim=(-0.02, 1.02))
    ax.tick_params(colors=_style.TEXT, labelsize=7, length=2)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return bars
