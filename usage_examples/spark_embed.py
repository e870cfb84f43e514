"""Vectors of a table of sentences on Spark.

  pip install pyspark bilm-keras
  spark-submit --master 'local[2]' usage_examples/spark_embed.py elmo sentences.parquet vectors

The table has the columns id, each different, and text. The result is a folder of Parquet files with
the column vectors. Rows whose ids are in the result are skipped, so an interrupted command
continues. Each Python worker loads the model once, which needs memory beyond the JVM's
(spark.executor.memoryOverhead); set `threads` to spark.task.cpus.
"""

from __future__ import annotations

import contextlib
import sys

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from bilm import TableEmbedder


def main(model: str, table: str, result: str) -> None:
    """Compute the missing rows."""
    spark = SparkSession.builder.getOrCreate()
    # Spark has no lists of a fixed size.
    embedder = TableEmbedder(model, pooling="mean", threads=1, fixed_size=False)
    rows = spark.read.parquet(table).select("id", "text")
    with contextlib.suppress(AnalysisException):  # there is no result yet
        rows = rows.join(spark.read.parquet(result).select("id"), "id", "left_anti")
    kind = rows.schema["id"].dataType.simpleString()
    columns = f"id {kind}, text string, vectors array<float>"
    rows.mapInArrow(embedder.batches, columns).write.mode("append").parquet(result)


if __name__ == "__main__":
    main(*sys.argv[1:])
