"""The notebook's cells run on Cora, and show what its text says."""

import json
import os
import runpy
from pathlib import Path

import pytest
import torch

NOTEBOOK = Path(__file__).parents[2] / "examples" / "cora.ipynb"


@pytest.mark.realdata
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::linkcal.exceptions.LinkcalWarning")  # In-n-Out's, of the base rate
def test_the_notebook_shows_what_it_says():
    if not os.environ.get("LINKCAL_DATA_ROOT"):
        pytest.skip("needs the raw data sets: set LINKCAL_DATA_ROOT")
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] for cell in cells if cell["cell_type"] == "code")
    here = {}
    with torch.random.fork_rng():
        for cell in code:
            exec(cell, here)
    assert all(float((d > 0).float().mean()) > 0.8 for d in here["effect"].values())
    ece = {name: row["ECE %"] for name, row in here["rows"].items()}
    assert ece["in-n-out-plus"] < ece["in-n-out"] < ece["uncalibrated"]
    assert ece["in-n-out-plus"] < here["rows"]["in-n-out-plus"]["noise 95 %"]
    assert len(here["p"]) == 4


def test_pictures_of_the_pages_are_drawn(tmp_path):
    draw = runpy.run_path(str(NOTEBOOK.parents[1] / "docs" / "pictures" / "draw.py"))
    for name in ("target_link", "base_rate"):
        draw[name](tmp_path)
        picture = (tmp_path / f"{name}.svg").read_text()
        assert "</svg>" in picture
        assert len(picture) < 100_000
    assert sorted(p.name for p in tmp_path.iterdir()) == ["base_rate.svg", "target_link.svg"]
