"""Figures of calibration.

matplotlib (extra ``plots``) is imported when the first figure is drawn; no global state is touched.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from linkcal._core.files import written_whole
from linkcal._core.validation import check_positive_int
from linkcal.exceptions import InputError, extra_needed
from linkcal.metrics import ReliabilityCurve, calibration_floor, reliability_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer
    from matplotlib.figure import Figure

__all__ = [
    "BAND", "DIAGONAL", "INSIDE", "LINE", "OUTSIDE", "STRIP", "TEXT", "plot_reliability",
    "reliability_figure", "save_figure",
]  # fmt: skip


# Colours shared by all figures (Okabe-Ito, which colour-blind readers can distinguish).
INSIDE = "#0072B2"
OUTSIDE = "#D55E00"
BAND = "#D9DEE4"
DIAGONAL = "#5B6570"
LINE = "#9AA5B1"
STRIP = "#8FA3B5"
TEXT = "#1F2933"

# Keeps bars of a single value visible.
_MIN_WIDTH = 0.012


def _as_curve(data: Any, options: Mapping[str, Any]) -> ReliabilityCurve:
    if isinstance(data, ReliabilityCurve):
        if options:
            raise InputError(f"data must be (y_true, y_prob) for {', '.join(options)} to apply, got a curve")
        return data
    if not isinstance(data, tuple) or len(data) != 2:
        raise InputError(f"data must be a ReliabilityCurve or (y_true, y_prob), got {type(data).__name__}")
    return reliability_curve(*data, **options)


def _bars(curve: ReliabilityCurve) -> tuple[Any, Any]:
    """Centres and widths (B,) of the bins."""
    return (curve.lower + curve.upper) / 2, np.maximum(curve.upper - curve.lower, _MIN_WIDTH)


def _new_figure(**options: Any) -> Figure:
    with extra_needed("a figure"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    figure = Figure(**options)
    FigureCanvasAgg(figure)
    return figure


def plot_reliability(
    data: ReliabilityCurve | tuple[Any, Any], ax: Axes | None = None, *, level: float = 0.95, **options: Any
) -> Axes:
    """Draw mean predicted probability against observed frequency, one point for each bin.

    Points below the diagonal are predictions that are too high. With probability `level`, a calibrated
    predictor has its point inside the grey band; only points outside are evidence of miscalibration.

    Parameters
    ----------
    data : ReliabilityCurve or tuple (y_true, y_prob)
    ax : matplotlib Axes, optional
        Default: those of a new figure.
    level : float in (0, 1)
        Probability of the band, for each bin.
    **options
        As in :func:`linkcal.metrics.reliability_curve`, if `data` is not a curve.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> axes = plot_reliability(([0, 1, 1, 1], [0.2, 0.3, 0.8, 0.9]), n_bins=2)
    >>> axes.lines[1].get_xydata().round(2).tolist()
    [[0.25, 0.5], [0.85, 1.0]]
    """
    curve = _as_curve(data, options)
    lower, upper = curve.null_band(level)
    # The tolerance forgives rounding in frequency and quantile.
    outlier = (curve.frequency < lower - 1e-9) | (curve.frequency > upper + 1e-9)
    axes = _new_figure(figsize=(4.5, 4.5), layout="constrained").add_subplot() if ax is None else ax
    centre, width = _bars(curve)
    points: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.6, "zorder": 4}
    inside: dict[str, Any] = {"s": 20, "c": INSIDE, "label": "bin inside the noise band"}
    outside: dict[str, Any] = {"s": 26, "c": OUTSIDE, "label": "bin outside it", "marker": "D"}
    for there, look in ((~outlier, inside), (outlier, outside)):
        axes.scatter(curve.mean_prob[there], curve.frequency[there], **points, **look)
    label = f"where {100 * level:g} % of calibrated predictors fall"
    height = np.maximum(upper - lower, 0.008)
    axes.bar(centre, height, width, bottom=lower, color=BAND, zorder=1, label=label)
    dashed: dict[str, Any] = {"color": DIAGONAL, "lw": 1.0, "ls": (0, (4, 3)), "zorder": 2}
    axes.plot([0, 1], [0, 1], **dashed, label="perfect calibration")
    axes.plot(curve.mean_prob, curve.frequency, color=LINE, lw=1.2, zorder=3)
    _dress(axes, curve)
    return axes


def _dress(axes: Axes, curve: ReliabilityCurve) -> None:
    ticks, labels = [0.0, 0.25, 0.5, 0.75, 1.0], ["0", "", "0.5", "", "1"]
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xticks=ticks, yticks=ticks)
    axes.set(xticklabels=labels, yticklabels=labels)
    axes.tick_params(colors=TEXT, labelsize=8, length=3)
    axes.spines[["top", "right"]].set_visible(False)
    positive = curve.variant == "positive"
    axes.set_xlabel("Mean predicted probability" if positive else "Mean confidence")
    axes.set_ylabel("Observed share of links" if positive else "Share of correct predictions")


def _plot_counts(curve: ReliabilityCurve, ax: Axes) -> BarContainer:
    """Draw the share of all links (by weight) in each bin, for the strip below a diagram."""
    centre, width = _bars(curve)
    bars = ax.bar(centre, curve.weight / curve.weight.sum(), width * 0.92, color=STRIP)
    ax.set(xlim=(-0.02, 1.02))
    ax.tick_params(colors=TEXT, labelsize=7, length=2)
    ax.spines[["top", "right"]].set_visible(False)
    return bars


def reliability_figure(
    y_true: Any,
    probabilities: Mapping[str, Any],
    path: str | os.PathLike[str] | None = None,
    *,
    title: str | None = None,
    n_bins: int = 15,
    level: float = 0.95,
    sample_weight: Any = None,
    n_columns: int = 3,
    dpi: int = 150,
) -> Figure:
    """Draw one small reliability diagram for each predictor, all on the same axes.

    A strip under each diagram shows the share of links in each bin. Each panel states the ECE, its 95 % noise
    floor (:func:`linkcal.metrics.calibration_floor`) and the number n of links.

    Parameters
    ----------
    y_true : array-like (L,), values 0 and 1, or dict of str to such arrays
        Labels of the links, for all predictors or by the name of each.
    probabilities : dict of str to array-like (L,), in [0, 1], or to None
        By name of the predictor, in the order of the panels; None (not for all) is shown as "not measured".
    path, dpi
        File to write, if any, as in :func:`save_figure`.
    title : str, optional
    n_bins, level, sample_weight
        As in :func:`plot_reliability`; bins have equal width.
    n_columns : int
        Panels in a row.

    Returns
    -------
    matplotlib Figure
    """
    measured = {name: prob for name, prob in probabilities.items() if prob is not None}
    if not measured:
        raise InputError("probabilities must hold at least one predictor, got none")
    columns = min(check_positive_int(n_columns, "n_columns"), len(probabilities))
    options: dict[str, Any] = {"n_bins": n_bins, "sample_weight": sample_weight}
    missing = [name for name in measured if isinstance(y_true, Mapping) and name not in y_true]
    if missing:
        raise InputError(f"y_true must hold the labels of {missing[0]}, got those of {', '.join(y_true)}")
    labels = y_true if isinstance(y_true, Mapping) else dict.fromkeys(measured, y_true)
    curves = {name: reliability_curve(labels[name], p, **options) for name, p in measured.items()}
    floors = {name: calibration_floor(prob, **options).q95 for name, prob in measured.items()}
    rows = math.ceil(len(probabilities) / columns)
    size = 0.9 + 2.75 * columns, 1.6 + 3.2 * rows
    figure = _new_figure(figsize=size, facecolor="white", layout="constrained")
    grid = figure.add_gridspec(2 * rows, columns, height_ratios=[5, 1] * rows)
    highest = max(float((c.weight / c.weight.sum()).max()) for c in curves.values())
    for index, name in enumerate(probabilities):
        row, column = divmod(index, columns)
        main = figure.add_subplot(grid[2 * row, column])
        strip = figure.add_subplot(grid[2 * row + 1, column], sharex=main)
        main.set_title(name, loc="left", fontsize=10.5, fontweight="bold", color=TEXT, pad=19)
        if name not in curves:
            middle: dict[str, Any] = {"ha": "center", "va": "center", "transform": main.transAxes}
            main.text(0.5, 0.5, "not measured", color=TEXT, **middle)
            main.set_axis_off()
            strip.set_axis_off()
            continue
        curve = curves[name]
        drawn = plot_reliability(curve, main, level=level)
        _plot_counts(curve, strip)
        _label_panel(main, strip, curve, floors[name], highest, first_column=column == 0)
    _label_figure(figure, columns, drawn, title)
    if path is not None:
        save_figure(figure, path, dpi=dpi)
    return figure


def save_figure(figure: Figure, path: str | os.PathLike[str], *, dpi: int = 150) -> None:
    """Write a figure whole or not at all; equal figures give equal bytes.

    Parameters
    ----------
    figure : matplotlib Figure
    path : path-like
        Its suffix gives the format (png, svg, pdf).
    dpi : int
        Resolution of a raster file, at least 1.
    """
    from matplotlib import rc_context

    dpi = check_positive_int(dpi, "dpi")
    # Dates, versions and random names of SVG parts would differ between equal figures.
    metadata: dict[str, dict[str, Any]] = {
        ".png": {"Software": None},
        ".svg": {"Date": None, "Creator": None},
        ".pdf": {"CreationDate": None},
    }
    with written_whole(path) as temporary, rc_context({"svg.hashsalt": "linkcal"}):
        figure.savefig(temporary, dpi=dpi, metadata=metadata.get(temporary.suffix))


def _label_panel(
    main: Axes, strip: Axes, curve: ReliabilityCurve, floor: float, highest: float, *, first_column: bool
) -> None:
    main.annotate(
        f"ECE {100 * curve.expected_calibration_error:.1f} %  (noise \u2264 {100 * floor:.1f} %, "
        f"n = {curve.count.sum():,})",
        (0, 1), xytext=(0, 6), xycoords="axes fraction", textcoords="offset points",
        fontsize=8, color=TEXT,
    )  # fmt: skip
    strip.set_xlabel(main.get_xlabel(), fontsize=8, color=TEXT)
    main.set(xlabel="", ylabel=main.get_ylabel() if first_column else "")
    main.tick_params(labelbottom=False, labelleft=first_column)
    top = min(1.0, math.ceil(highest * 10) / 10)
    strip.set(ylim=(0, top), yticks=[0, top])
    strip.set_yticklabels(["0", f"{100 * top:.0f} %"] if first_column else [])


def _label_figure(figure: Figure, columns: int, drawn: Axes, title: str | None) -> None:
    if title is not None:
        figure.suptitle(title, fontsize=13, color=TEXT)
    note = "n: pairs; strips: share of all pairs; noise: ECE that calibrated\n"
    note += "predictors stay below in 95 of 100 test sets of this size"
    handles, names = drawn.get_legend_handles_labels()
    legend = figure.legend(
        handles, names, loc="outside lower center", ncols=4 if columns >= 3 else columns, frameon=False,
        fontsize=9, labelcolor=TEXT, title=note, title_fontsize=8,
    )  # fmt: skip
    legend.get_title().set_color(TEXT)
