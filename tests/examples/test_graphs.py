"""The examples of bipartite, directed, weighted and growing graphs run, and show what they say."""

import runpy
from pathlib import Path

import numpy as np
import torch

from linkcal import toggle_edges
from linkcal.data import graph_from_hetero

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, **options: int):
    path = EXAMPLES / f"{name}.py"
    assert len(path.read_text().splitlines()) < 60
    with torch.random.fork_rng():
        return runpy.run_path(str(path))["main"](**options)


def test_bipartite(capsys):
    result = run("bipartite", users=120, items=60, epochs=30)
    assert result["calibrated"] < result["uncalibrated"]
    listed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("user")]
    for line in listed:
        user, item = (int(part.split()[1]) for part in line.split(":")[0].split(", "))
        assert user < 120
        assert item < 60
    assert len(listed) == 3


def test_directed():
    result = run("directed", num_nodes=150, epochs=40)
    assert result["forward"] > result["backward"] + 0.1


def test_weighted(capsys):
    result = run("weighted", epochs=20)
    assert result["calibrated"] < result["uncalibrated"]
    assert "toggled by method 'kernel'" in capsys.readouterr().out


def test_hetero(capsys):
    """And the toggled logits are those of the hetero model on data without the rating."""
    model, data, result = run("hetero")
    assert result["in-n-out-plus"] < result["uncalibrated"]
    assert "toggled by naive" in capsys.readouterr().out
    graph, kinds = graph_from_hetero(data.edge_type_subgraph([("user", "rates", "item")])), data.edge_types
    pairs = graph.pairs[:, [0, 7, 30]]
    toggled = toggle_edges(model, graph.node_input, graph.edge_index, pairs)
    for (user, item), found in zip(
        (pairs - torch.tensor([[0], [150]])).T.tolist(), toggled.logit_absent, strict=True
    ):
        rated = data[kinds[0]].edge_index
        without = rated[:, (rated != torch.tensor([[user], [item]])).any(dim=0)]
        assert without.size(1) == rated.size(1) - 1
        arcs = {kinds[0]: without, ("item", "rated_by", "user"): without.flip(0)}
        arcs |= {
            kinds[1]: data[kinds[1]].edge_index,
            ("item", "marked_by", "tag"): data[kinds[1]].edge_index.flip(0),
        }
        with torch.no_grad():
            h = model.first(data.x_dict, arcs)
            h = model.second({kind: part.relu() for kind, part in h.items()}, arcs)
        torch.testing.assert_close((h["user"][user] * h["item"][item]).sum(), found, rtol=1e-5, atol=1e-5)


def test_lightgcn(tmp_path, capsys):
    """A small file like MovieLens-100k's: ids of both types overlap, tastes are 3 hidden numbers."""
    rng = np.random.default_rng(0)
    score = rng.normal(size=(300, 3)) @ rng.normal(size=(3, 120)) + rng.gumbel(size=(300, 120))
    rows = [f"{u + 1}\t{i + 1}\t4\t881250949" for u, i in zip(*np.nonzero(score > 2.5), strict=True)]
    names = ("user_id:token", "item_id:token", "rating:float", "timestamp:float")
    (tmp_path / "small.inter").write_text("\n".join(["\t".join(names), *rows]) + "\n")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        main = runpy.run_path(str(EXAMPLES / "lightgcn.py"))["main"]
        found = main(tmp_path / "small.inter", epochs=150).metrics
    assert found["toggle_method"] == "kernel"
    assert found["results"]["in-n-out-plus"]["nll"] < found["results"]["uncalibrated"]["nll"]
    assert "in-n-out-plus" in capsys.readouterr().out


def test_temporal(capsys):
    result = run("temporal", epochs=30)
    assert result["refreshed with 200 labels"] < result["fitted on the past"]
    assert 0.0 < result["new node"] < 1.0
    assert int(capsys.readouterr().out.split()[0]) > 0  # unseen nodes
