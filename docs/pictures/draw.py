"""Draw the pictures of the concept pages."""

from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import expit

from linkcal import toggle_edges
from linkcal.calibrators import shift_base_rate
from linkcal.data import simulate_graph, split_links
from linkcal.models import TrainingConfig, make_model, train_link_predictor
from linkcal.plots import INSIDE, OUTSIDE, save_figure

GREY = "#7A8794"  # read on white and on black


def _axes(title: str, x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(5.2, 3.0), layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0)
    axes.set_title(title, loc="left", fontsize=10, color=GREY)
    axes.set_xlabel(x, color=GREY)
    axes.set_ylabel(y, color=GREY)
    axes.tick_params(colors=GREY)
    axes.spines[:].set_color(GREY)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def target_link(folder: Path) -> None:
    """Logits of training edges of a simulated graph, with and without themselves in the input."""
    graph = simulate_graph(600, num_edges=3000, num_features=60, seed=0)
    split = split_links(graph, val_fraction=0.2, test_fraction=0.2, seed=0)
    model = make_model("gcn", in_channels=60, seed=0)
    train_link_predictor(model, split, TrainingConfig(epochs=100), seed=0)
    edges = split.train.edge_label_index[:, split.train.edge_label == 1]
    found = toggle_edges(model, split.graph.node_input, split.graph.edge_index, edges)
    figure, axes = _axes("The same training edges, scored twice", "logit", "edges")
    parts = [
        ("edge in its own input", OUTSIDE, found.logit_present),
        ("without it", INSIDE, found.logit_absent),
    ]
    bins = np.linspace(*np.quantile(torch.cat([part[2] for part in parts]).numpy(), [0.005, 0.995]), 40)
    for label, colour, logit in parts:
        axes.hist(logit.numpy(), bins, histtype="step", lw=1.8, color=colour, label=label)
    axes.legend(frameon=False, labelcolor=GREY)
    save_figure(figure, folder / "target_link.svg")


def base_rate(folder: Path) -> None:
    """What one calibrated probability means where links are rarer than among the calibration pairs."""
    p = expit(np.linspace(-7, 9, 200))
    figure, axes = _axes("Calibrated on one negative per link", "probability as fitted", "probability there")
    for rate, colour in ((0.5, GREY), (0.1, INSIDE), (0.01, OUTSIDE)):
        axes.plot(
            p,
            shift_base_rate(p, from_rate=0.5, to_rate=rate),
            color=colour,
            lw=1.8,
            label=f"1 link in {1 / rate:g} pairs",
        )
    axes.legend(frameon=False, labelcolor=GREY)
    save_figure(figure, folder / "base_rate.svg")


if __name__ == "__main__":
    here = Path(__file__).parent
    target_link(here)
    base_rate(here)
