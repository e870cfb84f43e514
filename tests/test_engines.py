"""The example programs for Ray Data and Spark, on small tables."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bilm import ELMo
from tests.small_models import write_small_model

PROGRAMS = Path(__file__).parent.parent / "usage_examples"
LINES = ["the bird sees it", "", "a dog", "bird", "a small cat hears", "it"]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("engine", ["ray", "spark"])
def test_rows_that_are_missing_in_the_result_are_computed(engine, tmp_path):
    pytest.importorskip({"ray": "ray.data", "spark": "pyspark"}[engine])
    if engine == "spark" and shutil.which("java") is None:
        pytest.skip("needs Java")
    write_small_model(tmp_path / "elmo", "as_published")
    model, table, result = (str(tmp_path / name) for name in ("elmo", "in.parquet", "out"))
    elmo = ELMo.from_pretrained(model)
    for n_rows in (4, len(LINES)):
        ids = [f"s{number}" for number in range(n_rows)]
        pq.write_table(pa.table({"text": LINES[:n_rows], "id": ids}), table)
        environment = {"RAY_ADDRESS": "", "PYSPARK_PYTHON": sys.executable, **os.environ}
        command = [sys.executable, PROGRAMS / f"{engine}_embed.py", model, table, result]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-4000:]
        rows = {row["id"]: row for row in pq.read_table(result).to_pylist()}
        assert pq.read_table(result).num_rows == n_rows and sorted(rows) == ids
        for key, line in zip(ids, LINES, strict=False):
            assert rows[key]["text"] == line
            expected = np.zeros(elmo.dim)
            if line:
                expected = elmo.encode([line.split()], "average")[0].mean(axis=0)
            np.testing.assert_allclose(rows[key]["vectors"], expected, atol=1e-5)
