"""The scripts of docs/machines.md that start workers under SLURM and Kubernetes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_docs import ROOT, files_of

FILES = files_of(ROOT / "docs" / "machines.md")
# Stand-ins for the real programs: `bilm` prints its TF_CONFIG and arguments.
PROGRAMS = {
    "bilm": f"""#!{sys.executable}
import json, os, sys
print(json.dumps([json.loads(os.environ["TF_CONFIG"]), sys.argv[1:]]))
""",
    "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
    "scontrol": """#!/bin/sh
[ "$*" = "show hostnames node[01-02]" ] && printf 'node01\\nnode02\\n'
""",
    "srun": """#!/bin/bash
[ "$1" = --kill-on-bad-exit=1 ] || exit 9
for rank in 0 1; do SLURM_PROCID=$rank "${@:2}" || exit 1; done
""",
}
COMMAND = ["train", "--save_dir", "model", "--vocab_file", "vocab.txt", "--train_prefix",
           "corpus/train-*.txt"]  # fmt: skip


@pytest.fixture
def run(tmp_path):
    """Runs a script with the programs above; returns what each `bilm` printed."""
    (tmp_path / "bin").mkdir()
    for name, text in PROGRAMS.items():
        (tmp_path / "bin" / name).write_text(text, encoding="utf-8")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "tf_config.py").write_text(FILES["tf_config.py"], encoding="utf-8")

    def run(script, environment):
        path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, env={"PATH": path, **environment},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def config(addresses, index):
    return {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}


def test_slurm(run):
    job = {"SLURM_JOB_ID": "1010007", "SLURM_JOB_NODELIST": "node[01-02]"}
    addresses = ["node01:20007", "node02:20007"]
    expected = [[config(addresses, index), COMMAND] for index in range(2)]
    assert run(FILES["train.sbatch"], job) == expected


def test_kubernetes(run):
    yaml = pytest.importorskip("yaml")
    service, job = yaml.safe_load_all(FILES["train.yaml"])
    assert (service["kind"], job["kind"]) == ("Service", "Job")
    name, spec = job["metadata"]["name"], job["spec"]
    assert service["spec"]["selector"] == {"job-name": name}
    assert spec["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    assert spec["completions"] == spec["parallelism"]
    (container,) = spec["template"]["spec"]["containers"]
    assert container["command"] == ["bash", "-c"]
    addresses = [
        f"{name}-{k}.{service['metadata']['name']}:12345" for k in range(spec["completions"])
    ]
    for index in range(spec["completions"]):
        (script,) = container["args"]
        started = run(script, {"JOB_COMPLETION_INDEX": str(index)})
        assert started == [[config(addresses, index), COMMAND]]


def test_ray_train_is_a_program(tmp_path):
    path = Path(tmp_path / "ray_train.py")
    path.write_text(FILES["ray_train.py"], encoding="utf-8")
    compile(FILES["ray_train.py"], str(path), "exec")
