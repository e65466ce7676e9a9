"""Scores from embeddings and a named decoder: right sums, GraphStorm's layout, and what is refused."""

import numpy as np
import pandas as pd
import pytest

from linkcal import decode_embeddings
from linkcal.exceptions import InputError

RNG = np.random.default_rng(0)
X, R, W = RNG.normal(size=(50, 6)), RNG.normal(size=6), RNG.normal(size=(6, 6))
PAIRS = {"source": [3, 0, 49, 7], "target": [1, 2, 48, 7], "label": [1, 0, 1, 0]}


def write(path, ids, x=X, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame({"nid": ids, "emb": list(x), **columns}).to_parquet(path)
    return path


@pytest.fixture
def folder(tmp_path):
    """Two parts in any order of nodes, as GraphStorm writes them for a node type."""
    order = np.random.default_rng(1).permutation(50)
    for part, rows in enumerate(np.split(order, [20])):
        write(tmp_path / "node" / f"embed-0000{part}_00000.parquet", rows, X[rows].astype(np.float32))
    np.save(tmp_path / "r.npy", R)
    np.save(tmp_path / "W.npy", W)
    return tmp_path


BY_HAND = {
    "dot": lambda h, t: sum(a * b for a, b in zip(h, t, strict=True)),
    "cosine": lambda h, t: (h @ t) / (np.sqrt(h @ h) * np.sqrt(t @ t)),
    "distmult": lambda h, t: h @ np.diag(R) @ t,
    # Re((a + bi)(c + di)(e - fi)) = ace + adf + bcf - bde
    "complex": lambda h, t: sum(
        h[i] * R[i] * t[i]
        + h[i] * R[i + 3] * t[i + 3]
        + h[i + 3] * R[i] * t[i + 3]
        - h[i + 3] * R[i + 3] * t[i]
        for i in range(3)
    ),
    "bilinear": lambda h, t: sum(h[i] * W[i, j] * t[j] for i in range(6) for j in range(6)),
}


@pytest.mark.parametrize("decoder", BY_HAND)
def test_sums_by_hand(folder, decoder):
    relation = {"distmult": "r.npy", "complex": "r.npy", "bilinear": "W.npy"}.get(decoder)
    found = decode_embeddings(
        PAIRS, folder / "node", decoder=decoder, relation=None if relation is None else folder / relation
    )
    pairs = zip(PAIRS["source"], PAIRS["target"], strict=True)
    assert found["logit"] == pytest.approx(
        [BY_HAND[decoder](X[u], X[v]) for u, v in pairs], rel=1e-5, abs=1e-5
    )
    assert found["label"].tolist() == PAIRS["label"]


def test_two_types_have_embeddings_of_their_own(folder, tmp_path):
    items = write(tmp_path / "items.parquet", range(50), -X)
    one = decode_embeddings(PAIRS, folder / "node", decoder="dot")
    two = decode_embeddings(PAIRS, folder / "node", decoder="dot", target_embeddings=items)
    assert two["logit"] == pytest.approx(-one["logit"], rel=1e-6)


@pytest.mark.parametrize(
    ("ids", "x", "options", "message"),
    [
        (range(50), X, {"decoder": "hinge"}, "decoder must be one of"),
        (range(50), X, {"decoder": "distmult"}, r"relation must be a .npy file of shape \(6,"),
        (range(50), X, {"relation": "W.npy"}, "relation must be left out for the decoder dot"),
        (range(50), X, {"decoder": "distmult", "relation": "W.npy"}, r"numbers of shape \(6,\) below 1e\+75"),
        (range(50), X, {"decoder": "distmult", "relation": "odd.npy"}, "must be a .npy file of numbers"),
        (
            range(50),
            X[:, :5],
            {"decoder": "complex", "relation": "r5.npy"},
            "an even length for complex, got 5",
        ),
        ([*range(49), 0], X, {}, "embeddings must name each node once, got 0"),
        (range(49), X[:49], {}, "'source' must hold a node with an embedding in .*, got 1 of 4 rows"),
        (range(50), np.where(X > 2, np.nan, X), {}, "lists of numbers of one length in 'emb'"),
        (range(50), [*X[:49], X[0, :3]], {}, "lists of numbers of one length in 'emb'"),
        (range(50), ["a"] * 50, {}, "lists of numbers of one length in 'emb'"),
        (range(50), 1e80 * X, {"decoder": "cosine"}, "numbers that are not below"),
        (range(50), X[:, :0], {}, "or lists of other lengths or none"),
        (range(50), X, {"columns": ("nid", "h")}, "embeddings must have the column 'h', got"),
        ([], X[:0], {}, "embeddings must"),
    ],
)
def test_refused_in_one_line(folder, tmp_path, ids, x, options, message):
    (tmp_path / "odd.npy").write_bytes(b"no array")
    np.save(tmp_path / "r5.npy", R[:5])
    path = write(tmp_path / "x.parquet", ids, x)
    if "relation" in options:
        options = options | {"relation": tmp_path / options["relation"]}
    with pytest.raises(InputError, match=message) as error:
        decode_embeddings(PAIRS, path, **{"decoder": "dot", **options})
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="pairs must have no column 'logit'"):
        decode_embeddings(PAIRS | {"logit": [0] * 4}, path, decoder="dot")
