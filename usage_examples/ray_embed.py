"""Vectors of a table of sentences on Ray Data, on this machine or a cluster.

  pip install 'ray[data]' bilm-keras
  python usage_examples/ray_embed.py elmo sentences.parquet vectors --workers 2

The table has the columns id, each different, and text; it is a Parquet file or a folder of them.
The result is a folder of Parquet files with the column vectors. Rows whose ids are in the result
are skipped, so an interrupted command continues. For a cluster, set RAY_ADDRESS; model, table and
result must then have the same names on all machines, or be in an object store (s3://...).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import ray.data

from bilm import TableEmbedder


def main(argv: Sequence[str] | None = None) -> None:
    """Compute the missing rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("table")
    parser.add_argument("result")
    parser.add_argument("--workers", type=int, default=1, help="processes, each with the model")
    parser.add_argument("--cpus", type=int, default=1, help="CPUs of each (default: 1)")
    parser.add_argument("--gpus", type=float, default=0, help="GPUs of each (default: none)")
    args = parser.parse_args(argv)
    rows = ray.data.read_parquet(args.table, columns=["id", "text"])
    try:
        done = ray.data.read_parquet(args.result, columns=["id"])
    except FileNotFoundError:
        pass
    else:
        rows = rows.join(done, "left_anti", num_partitions=4 * args.workers, on=("id",))
    vectors = rows.map_batches(
        TableEmbedder,
        fn_constructor_args=(args.model,),
        fn_constructor_kwargs={"pooling": "mean", "threads": args.cpus},
        batch_format="pyarrow",
        num_cpus=args.cpus,
        num_gpus=args.gpus,
        compute=ray.data.ActorPoolStrategy(size=args.workers),
    )
    vectors.write_parquet(args.result, mode=ray.data.SaveMode.APPEND)


if __name__ == "__main__":
    main()
