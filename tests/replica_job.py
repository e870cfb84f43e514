"""Training runs, one after the other, in their own process: logical devices and the worker's index
can only be set before TensorFlow is used."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.processes import Forked


class Joined:
    """The batches of several workers, concatenated for one process."""

    def __init__(self, shares):
        self.shares = shares
        self.vocab = shares[0].vocab

    def word_counts(self, max_tokens=None):
        return self.shares[0].word_counts(max_tokens)  # each counts the text of all

    def iter_batches(self, batch_size, num_steps):
        rows = batch_size // len(self.shares)
        streams = [share.iter_batches(rows, num_steps) for share in self.shares]
        for batches in zip(*streams, strict=True):
            yield {
                name: None if value is None else np.concatenate([batch[name] for batch in batches])
                for name, value in batches[0].items()
            }


def set_up(n_devices):
    """Set up `n_devices` logical CPUs, without graph optimisation, which short runs do not need."""
    import tensorflow as tf

    devices = [tf.config.LogicalDeviceConfiguration()] * n_devices
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, devices)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


def run(corpus, options, save_dir, *, n_gpus=1, joined=0, stop=None, checkpoint=None, **settings):
    """Train, and print the record.

    Args:
        corpus: folder of `write_corpus`.
        n_gpus: number of logical CPUs that stand for GPUs.
        joined: number of workers whose shares are joined; 0 to read this worker's share.
        stop: step to stop after.
    """
    import bilm
    from bilm.training import find_replicas
    from tests.small_runs import Corpus

    share = find_replicas(n_gpus).worker.share
    files = Corpus(Path(corpus), [], [])

    def data(worker):
        return files.data(options, shuffle_on_load=True, seed=2, worker=worker)

    record = bilm.train(
        options,
        Joined([data((k, joined)) for k in range(joined)]) if joined else data(share),
        n_gpus,
        save_dir,
        save_dir,
        checkpoint,
        heldout=files.data(options, "heldout.txt", test=True, worker=share),
        heldout_every="3 steps",
        progress=lambda event: event.step == stop,
        **settings,
    )
    heldout = [(step, p, p.forward, p.backward, p.n_predictions) for step, p in record.heldout]
    print(json.dumps([record.checkpoint, record.train_perplexity, record.n_tokens, heldout]))


def run_all(jobs):
    set_up(max(job.get("n_gpus", 1) for job in jobs))
    for job in jobs:
        run(**job)


def start(*jobs, worker=0, ports=()):
    """Start a process that runs jobs, alone or as one of the workers at `ports`."""
    environment = {"TF_CONFIG": tf_config(worker, ports)} if ports else {}
    return Forked(run_all, jobs, environment=environment)


def tf_config(worker, ports):
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    return json.dumps({"cluster": cluster, "task": {"type": "worker", "index": worker}})


def results(process):
    """The printed record of each job of a process, which must exit with 0."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return [json.loads(line) for line in out.splitlines() if line.startswith("[")]
