"""Probabilities of a folder of pairs by Spark: spark-submit spark_score.py FITTED PAIRS OUT.

Every Python worker of Spark reads the folder FITTED once, from the same path.
"""

import sys
from collections.abc import Iterator

import pandas as pd
from pyspark.sql import SparkSession

from linkcal import scoring_function

fitted, pairs, out = sys.argv[1:]
function = scoring_function(fitted)


def scored(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    return map(function, batches)


spark = SparkSession.builder.getOrCreate()
table = spark.read.parquet(pairs).select("source", "target")
ids = ", ".join(f"{name} {kind}" for name, kind in table.dtypes)
schema = f"{ids}, logit double, probability double, in_graph boolean"
table.mapInPandas(scored, schema).write.parquet(out)
