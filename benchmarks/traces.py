"""Row: the number of traces and compilations in a run."""

from __future__ import annotations

import functools
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.embedding import embedder
from benchmarks.results import Effort, Figure, Measured
from benchmarks.training import run_steps, text_options
from benchmarks.workspace import Workspace

_HANDFUL = 8


def count_traces(workspace: Workspace, effort: Effort) -> Measured:
    """Count traces of tf.functions and XLA compilations, in training and in embedding.

    A tf.function runs its Python code once per trace. XLA can dump each program that it compiles,
    one for every new shape.
    """
    text = workspace.text(effort.pick(200_000, 20_000, 5_000))
    options, _, _ = workspace.network("tiny")
    with counted_functions() as traces, _programs_written_down(workspace.folder) as programs:
        n_steps = effort.pick(100, 20, 2)
        run_steps(text_options(options, text), text, workspace.vocabulary(), at_least=n_steps)
        training, trained = Counter(traces), _count_programs(programs)
        embedder(workspace, "tiny")(text.path)
        embedding, embedded = traces - training, _count_programs(programs) - trained
    return Measured(
        figures=(
            *_figures("training", training, trained),
            *_figures("embedding", embedding, embedded),
        ),
        details={
            "training": {"traces": dict(training), "programs": dict(trained)},
            "embedding": {"traces": dict(embedding), "programs": dict(embedded)},
        },
    )


def _figures(work: str, traces: Counter[str], programs: Counter[str]) -> tuple[Figure, ...]:
    most_traces, most_programs = (max(c.values(), default=0) for c in (traces, programs))
    return (
        Figure(f"{work}: most traces of a function", most_traces, "", _HANDFUL),
        Figure(f"{work}: all traces", traces.total(), ""),
        Figure(f"{work}: most XLA programs of a function", most_programs, "", _HANDFUL),
        Figure(f"{work}: all XLA programs", programs.total(), ""),
    )


@contextmanager
def counted_functions() -> Iterator[Counter[str]]:
    """Count the traces of every tf.function created in the block, by function name."""
    import tensorflow as tf

    traces: Counter[str] = Counter()
    original = tf.function

    def function(code: Callable[..., Any] | None = None, *args: Any, **settings: Any) -> Any:
        if code is None:
            return lambda later: function(later, *args, **settings)

        body = code.func if isinstance(code, functools.partial) else code
        name = getattr(body, "__qualname__", type(body).__name__)

        @functools.wraps(code)
        def traced(*inputs: Any, **named: Any) -> Any:
            traces[name] += 1
            return code(*inputs, **named)

        return original(traced, *args, **settings)

    tf.function = function
    try:
        yield traces
    finally:
        tf.function = original


@contextmanager
def _programs_written_down(work: Path) -> Iterator[Path]:
    """Make XLA dump each program to a folder; it reads the flags when it is first used."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_dump_to={folder} --xla_dump_hlo_as_text"
        yield Path(folder)


def _count_programs(folder: Path) -> Counter[str]:
    """Number of compiled programs by function name, such as a_inference_step in the file name
    module_0002.a_inference_step_32__XlaMustCompile.before_optimizations.txt."""
    files = folder.glob("module_*.before_optimizations.txt")
    return Counter(re.split(r"_+\d", file.name.split(".")[1])[0] for file in files)
