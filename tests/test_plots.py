"""Reliability diagrams: points, band, outliers, captions; files that are whole and repeatable."""

import struct

import matplotlib as mpl
import numpy as np
import pytest

from linkcal.exceptions import InputError
from linkcal.metrics import calibration_floor, expected_calibration_error, reliability_curve
from linkcal.plots import _plot_counts, plot_reliability, reliability_figure
from refusals import refuses

# Ten links in (0, 0.5] and ninety in (0.5, 1]: the second bin is far off, the first within its noise.
LABELS = np.array([1] * 3 + [0] * 7 + [1] * 30 + [0] * 60)
PROBS = np.array([0.2] * 10 + [0.9] * 90)


def test_points_are_the_curve_and_outliers_are_marked():
    axes = plot_reliability((LABELS, PROBS), n_bins=2)
    np.testing.assert_allclose(axes.lines[1].get_xydata(), [[0.2, 0.3], [0.9, 1 / 3]])
    np.testing.assert_allclose(axes.collections[0].get_offsets(), [[0.2, 0.3]])
    np.testing.assert_allclose(axes.collections[1].get_offsets(), [[0.9, 1 / 3]])


def test_band_is_the_band_of_the_curve():
    curve = reliability_curve(LABELS, PROBS, n_bins=2)
    axes = plot_reliability(curve, level=0.9)
    lower, upper = curve.null_band(0.9)
    boxes = [(r.get_x(), r.get_width(), r.get_y(), r.get_height()) for r in axes.patches]
    np.testing.assert_allclose(
        boxes, [(0.0, 0.5, lower[0], upper[0] - lower[0]), (0.5, 0.5, lower[1], upper[1] - lower[1])]
    )


def test_certain_and_right_predictions_are_inside_their_band():
    axes = plot_reliability(([0, 1, 1], [0.0, 1.0, 1.0]))
    assert len(axes.collections[1].get_offsets()) == 0


def test_counts_are_shares_of_the_weight():
    axes = plot_reliability((LABELS, PROBS), n_bins=2).figure.add_subplot()
    bars = _plot_counts(reliability_curve(LABELS, PROBS, n_bins=2), axes)
    np.testing.assert_allclose([bar.get_height() for bar in bars.patches], [0.1, 0.9])


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ([0, 1], {}, r"data must be a ReliabilityCurve or \(y_true, y_prob\), got list"),
        ((LABELS, PROBS), {"level": 2.0}, r"level must be in \(0, 1\), got 2.0"),
        (reliability_curve(LABELS, PROBS), {"n_bins": 3}, r"must be \(y_true, y_prob\) for n_bins to apply"),
    ],
)
def test_bad_arguments_are_named(data: object, options: dict[str, object], message: str):
    refuses(message, plot_reliability, data, **options)


# --- one panel for each predictor ---------------------------------------------------------------------------

RNG = np.random.default_rng(0)
TRUTH = RNG.random(300)
Y = (RNG.random(300) < TRUTH).astype(int)


def predictors(n: int) -> dict[str, np.ndarray]:
    return {f"method-{i}": TRUTH ** (1 + i / 2) for i in range(n)}


@pytest.mark.parametrize("n", [1, 9])
def test_one_diagram_and_one_strip_for_each_predictor(n: int):
    figure = reliability_figure(Y, predictors(n))
    titles = [axes.get_title(loc="left") for axes in figure.axes[::2]]
    assert titles == list(predictors(n))
    assert len(figure.axes) == 2 * n
    assert len(figure.legends) == 1


def test_captions_hold_the_values_of_the_metrics():
    figure = reliability_figure(Y, predictors(2), n_bins=10)
    for axes, p in zip(figure.axes[::2], predictors(2).values(), strict=True):
        ece = 100 * expected_calibration_error(Y, p, n_bins=10)
        noise = 100 * calibration_floor(p, n_bins=10).q95
        assert axes.texts[0].get_text() == f"ECE {ece:.1f} %  (noise \u2264 {noise:.1f} %, n = {len(Y)})"


@pytest.mark.parametrize("n", [1, 9])
def test_nothing_written_lies_outside_the_figure_or_on_other_words(n: int):
    links = 300_000
    seen = {name: np.tile(p, links // len(Y)) for name, p in predictors(n).items()}
    figure = reliability_figure(np.tile(Y, links // len(Y)), seen, title=f"Simulated: {links} test pairs")
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in figure.texts] + [figure.legends[0].get_window_extent()]
    for axes in figure.axes[::2]:
        boxes.append(axes.texts[0].get_window_extent())
        boxes.append(axes._left_title.get_window_extent())
    page = figure.bbox
    for i, box in enumerate(boxes):
        assert page.x0 <= box.x0 < box.x1 <= page.x1
        assert page.y0 <= box.y0 < box.y1 <= page.y1
        assert not any(box.overlaps(other) for other in boxes[i + 1 :])


def test_file_is_a_png_of_the_asked_resolution_and_repeatable(tmp_path):
    figure = reliability_figure(Y, predictors(3), tmp_path / "a.png", dpi=50)
    reliability_figure(Y, predictors(3), tmp_path / "b.png", dpi=50)
    data = (tmp_path / "a.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert (width, height) == pytest.approx(figure.get_size_inches() * 50, abs=1)
    assert data == (tmp_path / "b.png").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.png", "b.png"]
    before = mpl.rcParams["svg.hashsalt"]
    for name in ("a.svg", "b.svg"):
        reliability_figure(Y, predictors(2), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert mpl.rcParams["svg.hashsalt"] == before


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "a.nonsense"
    path.write_text("old")
    with pytest.raises(ValueError, match="nonsense"):
        reliability_figure(Y, predictors(1), path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.nonsense"]


def test_nothing_is_written_for_bad_input(tmp_path):
    with pytest.raises(InputError, match="probabilities must hold at least one predictor, got none"):
        reliability_figure(Y, {}, tmp_path / "a.png")
    with pytest.raises(InputError, match="y_true must have one label per link, 2, got 300"):
        reliability_figure(Y, {"a": [0.1, 0.2]}, tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []


def test_each_predictor_may_have_its_own_links_or_none():
    labels = {"a": Y, "b": Y[:50]}
    probabilities = {"a": TRUTH, "gap": None, "b": TRUTH[:50]}
    figure = reliability_figure(labels, probabilities)
    shown = [[text.get_text() for text in axes.texts] for axes in figure.axes[::2]]
    assert shown[1] == ["not measured"]
    ece = 100 * expected_calibration_error(Y[:50], TRUTH[:50])
    assert shown[2][0].startswith(f"ECE {ece:.1f} %")
    refuses("y_true must hold the labels of b, got those of a", reliability_figure, {"a": Y}, {"b": TRUTH})
