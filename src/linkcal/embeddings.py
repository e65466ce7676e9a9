"""Scores of pairs from node embeddings and a named decoder, as other systems leave them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import normalize

from linkcal._core.files import damage_named, listed, one_line
from linkcal._core.maths import FloatArray
from linkcal._core.tables import Columns, Table
from linkcal._core.validation import check_choice
from linkcal.exceptions import InputError, extra_needed

__all__ = ["DECODERS", "decode_embeddings"]

_Path = str | os.PathLike[str]

#: Decoders, and how many axes of length d their relation has.
DECODERS = {"dot": 0, "cosine": 0, "distmult": 1, "complex": 1, "bilinear": 2}
_LARGEST = 1e75


def decode_embeddings(
    pairs: Table,
    embeddings: _Path,
    *,
    decoder: str,
    relation: _Path | None = None,
    target_embeddings: _Path | None = None,
    source: str = "source",
    target: str = "target",
    columns: Sequence[str] = ("nid", "emb"),
) -> dict[str, NDArray[Any]]:
    """Columns of the pairs, and ``logit``, the decoder's score of both nodes' embeddings.

    Parameters
    ----------
    pairs : path or mapping of columns
        As for :func:`linkcal.calibrate_scores`, without a column ``logit``.
    embeddings, target_embeddings : path
        A Parquet file, or a folder of such files (GraphStorm's layout), of all nodes; or of the source nodes,
        and another of the target nodes. Needs ``linkcal[parquet]``.
    decoder : {"dot", "cosine", "distmult", "complex", "bilinear"}
    relation : path, optional
        A .npy file of numbers: r (d,) for distmult and complex, W (d, d) for bilinear.
    source, target : str
        Columns of `pairs` with node ids, which are compared as texts.
    columns : two str
        Columns of the embeddings with the node id, and with the embedding, a list of d numbers.

    Returns
    -------
    dict of str to ndarray (n,)
        InputError if a node has no embedding, or an embedding is damaged or of another length.

    Notes
    -----
    With embeddings h and t of source and target, in float64::

        dot       h . t                        cosine    dot of h and t at length 1, 0 where one of them is 0
        distmult  sum_i h_i r_i t_i            complex   Re sum_i h_i r_i conj(t_i)
        bilinear  h' W t

    Of complex embeddings the first half is real, the second imaginary.
    (DistMult: Yang et al., 2015; ComplEx: Trouillon et al., 2016.)

    Examples
    --------
    >>> import pandas as pd
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     nodes = pd.DataFrame({"nid": ["a", "b"], "emb": [[1.0, 2.0], [3.0, 0.5]]})
    ...     nodes.to_parquet(Path(folder, "embed-00000_00000.parquet"))
    ...     decode_embeddings({"source": ["a"], "target": ["b"]}, folder, decoder="dot")["logit"]
    array([4.])
    """
    needed = DECODERS[check_choice(decoder, "decoder", DECODERS)]
    table = Columns(pairs, "pairs")
    table.require([source, target])
    if "logit" in table.names:
        raise InputError(f"pairs must have no column 'logit', which is computed, got one in {table.place}")
    first = _read(embeddings, columns)
    second = first if target_embeddings is None else _read(target_embeddings, columns)
    h, t = (
        _rows(table, name, *nodes, path)
        for name, nodes, path in (
            (source, first, embeddings),
            (target, second, target_embeddings or embeddings),
        )
    )
    if h.shape != t.shape:
        raise InputError(f"target_embeddings must have length {h.shape[1]}, got {t.shape[1]}")
    r = _relation(relation, decoder, (h.shape[1],) * needed)
    if decoder == "cosine":
        h, t = normalize(h), normalize(t)
    if decoder == "complex" and h.shape[1] % 2:
        raise InputError(f"embeddings must have an even length for complex, got {h.shape[1]}")
    related: NDArray[Any] = h @ r if decoder == "bilinear" else h * r
    if decoder == "complex":
        related, t = _complex(h) * _complex(r), np.conj(_complex(t))
    logit = np.real(np.einsum("nd,nd->n", related, t))
    return {name: table.column(name) for name in table.names} | {"logit": logit}


def _complex(x: FloatArray) -> NDArray[Any]:
    real, imaginary = np.split(x, 2, axis=-1)
    return np.asarray(real + 1j * imaginary)


def _relation(path: _Path | None, decoder: str, shape: tuple[int, ...]) -> FloatArray:
    """The relation of this shape; 1 where the decoder has none."""
    if (path is None) == bool(shape):
        got = "None" if path is None else str(path)
        what = f"a .npy file of shape {shape}" if shape else "left out"
        raise InputError(f"relation must be {what} for the decoder {decoder}, got {got}")
    if path is None:
        return np.ones(())
    with damage_named(Path(path), "relation", "a .npy file of numbers"):
        found = np.load(path, allow_pickle=False)
    if (
        getattr(found, "shape", None) != shape
        or found.dtype.kind not in "fiu"
        or not (np.abs(found) < _LARGEST).all()
    ):
        raise InputError(
            f"relation must hold numbers of shape {shape} below {_LARGEST:g}, got others in {path}"
        )
    return np.asarray(found, dtype=np.float64)


def _read(path: _Path, columns: Sequence[str]) -> tuple[dict[str, int], FloatArray]:
    """Rows by node id, and embeddings (N, d)."""
    with extra_needed("embeddings"):
        from pyarrow import compute, parquet
    root = Path(path)
    files = sorted(root.rglob("*.parquet")) if root.is_dir() else [root]
    if not files or not files[0].is_file():
        raise InputError(f"embeddings must be a Parquet file or a folder of such files, got {str(path)!r}")
    rows: dict[str, int] = {}
    blocks: list[FloatArray] = []
    for file in files:
        with damage_named(file, "embeddings", "a valid Parquet file"):
            found = parquet.ParquetFile(file).read()
        if missing := [name for name in columns if name not in found.column_names]:
            raise InputError(
                f"embeddings must have the column {missing[0]!r}, got {listed(found.column_names)} in {file}"
            )
        nodes, vectors = (found[name].combine_chunks() for name in columns)
        with damage_named(file, "embeddings", f"lists of numbers of one length in {columns[1]!r}"):
            flat = np.asarray(compute.list_flatten(vectors).to_numpy(zero_copy_only=False), dtype=np.float64)
            length = compute.list_value_length(vectors).to_numpy(zero_copy_only=False)
            block = flat.reshape(len(nodes), -1) if len(nodes) else flat.reshape(0, 0)
            width = blocks[0].shape[1] if blocks else block.shape[1]
            # Products of larger numbers leave float64; NaN is not below either.
            if len(nodes) and not ((np.abs(block) < _LARGEST).all() and (length == width).all() and width):
                raise ValueError(
                    f"numbers that are not below {_LARGEST:g}, or lists of other lengths or none"
                )
        if len(nodes):
            blocks.append(block)
        for node in nodes.to_pylist():
            if node is None or str(node).strip() in rows:
                raise InputError(f"embeddings must name each node once, got {one_line(repr(node))} in {file}")
            rows[str(node).strip()] = len(rows)
    if not rows:
        raise InputError(f"embeddings must hold some, got no row in {path}")
    return rows, np.concatenate(blocks)


def _rows(table: Columns, name: str, rows: dict[str, int], x: FloatArray, path: _Path) -> FloatArray:
    """Embeddings (n, d) of a column of nodes."""
    nodes = table.texts(name, "hold a node id")
    table.refuse([node not in rows for node in nodes], name, f"hold a node with an embedding in {path}")
    return x[[rows[node] for node in nodes]]
