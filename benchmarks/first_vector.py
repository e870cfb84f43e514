"""`python -m benchmarks.first_vector OPTIONS WEIGHTS`: seconds to import, and to a first vector.

A program of its own, so that nothing is in memory beforehand.
"""

from __future__ import annotations

import json
import sys
import time


def main(options_file: str, weight_file: str) -> None:
    """Print the two times as a JSON object."""
    start = time.perf_counter()
    import tensorflow  # noqa: F401

    imported = time.perf_counter()
    from bilm import Batcher, BidirectionalLanguageModel

    model = BidirectionalLanguageModel(options_file, weight_file)
    ids = Batcher(None, 50).batch_sentences([["A", "first", "sentence", "."]])
    model(ids)["lm_embeddings"].numpy()
    done = time.perf_counter()
    print(json.dumps({"import_tensorflow": imported - start, "first_vector": done - imported}))


if __name__ == "__main__":
    main(*sys.argv[1:])
