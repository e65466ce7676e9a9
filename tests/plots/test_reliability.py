"""What a reliability diagram shows: points, band, outliers; and that drawing touches nothing global."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from linkcal.exceptions import InputError
from linkcal.metrics import reliability_curve
from linkcal.plots import plot_counts, plot_reliability

# Ten links in (0, 0.5] and ninety in (0.5, 1]: the second bin is far off, the first within its noise.
Y = np.array([1] * 3 + [0] * 7 + [1] * 30 + [0] * 60)
P = np.array([0.2] * 10 + [0.9] * 90)


def test_points_are_the_curve_and_outliers_are_marked() -> None:
    artists = plot_reliability((Y, P), n_bins=2)
    np.testing.assert_allclose(artists.line.get_xydata(), [[0.2, 0.3], [0.9, 1 / 3]])
    np.testing.assert_allclose(artists.inside.get_offsets(), [[0.2, 0.3]])
    np.testing.assert_allclose(artists.outside.get_offsets(), [[0.9, 1 / 3]])


def test_band_is_the_band_of_the_curve() -> None:
    curve = reliability_curve(Y, P, n_bins=2)
    artists = plot_reliability(curve, level=0.9)
    lower, upper = curve.null_band(0.9)
    assert artists.band is not None
    boxes = [(r.get_x(), r.get_width(), r.get_y(), r.get_height()) for r in artists.band.patches]
    np.testing.assert_allclose(
        boxes, [(0.0, 0.5, lower[0], upper[0] - lower[0]), (0.5, 0.5, lower[1], upper[1] - lower[1])]
    )


def test_without_band_no_point_is_called_an_outlier() -> None:
    artists = plot_reliability((Y, P), n_bins=2, band=False)
    assert artists.band is None
    assert len(artists.inside.get_offsets()) == 2
    assert len(artists.outside.get_offsets()) == 0


def test_certain_and_right_predictions_are_inside_their_band() -> None:
    artists = plot_reliability(([0, 1, 1], [0.0, 1.0, 1.0]))
    assert len(artists.outside.get_offsets()) == 0


def test_axes_are_named_after_the_variant_and_given_axes_are_used() -> None:
    axes = plot_reliability((Y, P), variant="top-label").axes
    assert axes.get_xlabel() == "Mean confidence"
    assert axes.get_ylabel() == "Share of right predictions"
    again = plot_reliability((Y, P), axes, axis_labels=True)
    assert again.axes is axes
    assert axes.get_ylabel() == "Observed share of links"
    assert axes.get_xlim() == axes.get_ylim() == (-0.02, 1.02)


def test_counts_are_shares_of_the_weight() -> None:
    axes = plot_reliability((Y, P), n_bins=2).axes.figure.add_subplot()
    bars = plot_counts(reliability_curve(Y, P, n_bins=2), axes)
    np.testing.assert_allclose([bar.get_height() for bar in bars.patches], [0.1, 0.9])


def test_equal_mass_bins_of_one_value_are_still_visible() -> None:
    artists = plot_reliability((Y, P), strategy="quantile")
    assert artists.band is not None
    assert all(bar.get_width() > 0.01 for bar in artists.band.patches)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ([0, 1], {}, r"data must be a ReliabilityCurve or \(y_true, y_prob\), got list"),
        ((Y, P), {"level": 2.0}, r"level must be in \(0, 1\), got 2.0"),
        ((Y, P), {"n_bins": 0}, "n_bins must be a whole number"),
        (reliability_curve(Y, P), {"n_bins": 3}, r"data must be \(y_true, y_prob\) for n_bins to apply"),
    ],
)
def test_bad_arguments_are_named(data: object, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plot_reliability(data, **options)


def test_matplotlib_is_loaded_by_the_first_figure_and_pyplot_never() -> None:
    program = (
        "import sys, linkcal.plots as plots\n"
        "before = 'matplotlib' in sys.modules\n"
        "plots.plot_reliability(([0, 1], [0.2, 0.8]))\n"
        "print(before, 'matplotlib' in sys.modules, 'matplotlib.pyplot' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]
