"""The server of the example under concurrent clients: the numbers of one caller, and refusals in one line."""

import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import torch

from linkcal import CalibratedLinkPredictor, Platt
from linkcal.data import simulate_graph, split_links
from linkcal.models import make_model

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A client of the server, and the predictor whose folder it serves."""
    split = split_links(simulate_graph(300, num_edges=900, num_features=20, seed=0), seed=0)
    clp = CalibratedLinkPredictor(make_model("gcn", 20), Platt()).fit(split)
    folder = tmp_path_factory.mktemp("served") / "run"
    clp.save(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "--app-dir",
        str(EXAMPLES),
        "--port",
        str(port),
        "serve_fastapi:app",
    ]
    server = subprocess.Popen(command, env={**os.environ, "LINKCAL_RUN": str(folder)})
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:
            for _ in range(600):
                try:
                    client.get("/docs")
                    break
                except httpx.TransportError:
                    assert server.poll() is None, "the server ended"
                    time.sleep(0.1)
            yield client, clp
    finally:
        server.terminate()
        server.wait(10)


def test_eight_clients_get_the_numbers_of_one(served):
    client, clp = served
    pairs = torch.randint(300, (64, 2, 5), generator=torch.Generator().manual_seed(0))
    pairs = [each[:, each[0] != each[1]] for each in pairs]

    def ask(each):
        source, target = ([str(node) for node in row] for row in each.tolist())
        answer = client.post("/probabilities", json={"source": source, "target": target})
        assert answer.status_code == 200, answer.text
        return answer.json()

    expected = [clp.predict_proba(each).tolist() for each in pairs]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, pairs)) == expected


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (["1", "zz"], ["2", "3"], "pairs must name nodes of the graph, got 1 others, first ('zz', '3')"),
        (["1"], ["2", "3"], "target must be as long as source, 1, got 2"),
        (["7"], ["7"], "must join two different nodes"),
    ],
)
def test_refusals_are_one_line(served, source, target, message):
    answer = served[0].post("/probabilities", json={"source": source, "target": target})
    assert answer.status_code == 422
    assert message in answer.json()["detail"]
