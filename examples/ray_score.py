"""Probabilities of a folder of pairs by Ray Data: ray_score.py FITTED PAIRS OUT, on $RAY_ADDRESS or here."""

import sys

import ray.data

from linkcal import scoring_function

fitted, pairs, out = sys.argv[1:]
table = ray.data.read_parquet(pairs, columns=["source", "target"])
table.map_batches(scoring_function(fitted), batch_format="pyarrow", batch_size=65536).write_parquet(out)
