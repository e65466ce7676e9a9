"""Probabilities of a fitted folder over HTTP.

LINKCAL_RUN=runs/mine uvicorn --app-dir examples serve_fastapi:app
"""

import os

import torch
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from linkcal import CalibratedLinkPredictor
from linkcal.data import NodeIds
from linkcal.exceptions import InputError

predictor = CalibratedLinkPredictor.load(os.environ["LINKCAL_RUN"])
node_ids = predictor.node_ids_ or NodeIds.range(predictor.graph_.num_nodes)
scorer = predictor.scorer()  # verified once; threads may share it
app = FastAPI(title="linkcal")


class Pairs(BaseModel):
    """Node ids of query pairs, as texts."""

    source: list[str]
    target: list[str]
    base_rate: float | None = None


@app.post("/probabilities")
def probabilities(pairs: Pairs) -> list[float]:
    try:
        if len(pairs.source) != len(pairs.target):
            raise InputError(
                f"target must be as long as source, {len(pairs.source)}, got {len(pairs.target)}"
            )
        index = torch.from_numpy(node_ids.lookup_pairs(pairs.source, pairs.target))
        unknown = (index < 0).any(dim=0).nonzero().flatten().tolist()
        if unknown:
            pair = pairs.source[unknown[0]], pairs.target[unknown[0]]
            raise InputError(f"pairs must name nodes of the graph, got {len(unknown)} others, first {pair}")
        return predictor.probability_of(scorer.score(index), base_rate=pairs.base_rate).tolist()
    except InputError as error:
        raise HTTPException(422, str(error)) from error
