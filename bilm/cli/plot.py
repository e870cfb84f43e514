"""Draw the curves of training runs as a picture.

Reads the logs that `bilm train` writes (train_log.jsonl): perplexity in training, and of the
held-out text where it was measured, over the tokens seen. Needs the package matplotlib.

  bilm plot model --out curves.png
  bilm plot model-a model-b --out both.png
"""

from __future__ import annotations

import argparse
import math
import os
from typing import TYPE_CHECKING, Any

from bilm.cli import flags
from bilm.cli.terminal import import_tensorflow
from bilm.core.errors import InputError
from bilm.extras import import_extra
from bilm.files.writing import atomic_write, require_place

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SMOOTHED = 4  # points of the log on either side, in runs that are long enough
_FORMATS = (".png", ".pdf", ".svg")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"runs RUN_DIR ...": "folder of a run, or its log"})
    picture = "picture to write: .png, .pdf or .svg (default: curves.png)"
    flags.add(parser, {"--out FILE": picture}, default="curves.png")


def run(args: argparse.Namespace) -> int:
    ending = os.path.splitext(args.out)[1]
    if ending not in _FORMATS:
        raise InputError(f"--out must end in one of {', '.join(_FORMATS)}, got {args.out!r}.")
    for path in args.runs:
        if not os.path.exists(path):
            raise FileNotFoundError(f"There is no training log at {path!r}.")
    require_place(args.out)
    import_extra("matplotlib.figure", "bilm plot")
    import_tensorflow()
    from bilm.training.log import read_log

    figure = draw({name: read_log(name) for name in args.runs})
    with atomic_write(args.out) as temporary:
        figure.savefig(temporary, format=ending[1:], dpi=150)
    print(args.out)
    return 0


def draw(runs: dict[str, list[dict[str, Any]]]) -> Figure:
    """A figure of the curves of runs, given the lines of their logs by name. It needs no
    display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    axes.set_yscale("log")
    labels = _names(list(runs))
    for number, (name, lines) in enumerate(runs.items()):
        prefix = f"{labels[name]}: " if len(runs) > 1 else ""
        _draw_run(axes, lines, prefix, number, len(runs) == 1)
    axes.set_xlabel("training tokens seen")
    axes.set_ylabel("perplexity")
    _label_axes(axes)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, fontsize="small")
    if len(runs) == 1:
        axes.set_title(next(iter(labels.values())))
    return figure


def _draw_run(
    axes: Axes, lines: list[dict[str, Any]], prefix: str, number: int, alone: bool
) -> None:
    """The curves of a run: training thin, held-out thick, the best one marked."""
    color = f"C{number}"
    held = "C1" if alone else color

    def plot(lines: list[dict[str, Any]], name: str, label: str, **style: Any) -> None:
        lines = [line for line in lines if line.get(name) is not None]
        x, y = [line["tokens"] for line in lines], [line[name] for line in lines]
        axes.plot(x, y, color=held, label=label, **style)

    trained = [line for line in lines if line.get("train_perplexity") is not None]
    if trained:
        kind = "training, sampled softmax" if trained[-1].get("sampled") else "training"
        x = [line["tokens"] for line in trained]
        y = [line["train_perplexity"] for line in trained]
        half = min(_SMOOTHED, len(y) // 10)
        if half:  # the points themselves, behind the curve
            axes.plot(x, y, color=color, alpha=0.2, linewidth=0.6)
            kind += ", smoothed"
        curve = _smooth(y, half)
        axes.plot(x, curve, color=color, alpha=0.7, linewidth=1, label=f"{prefix}{kind}")
    measured = [line for line in lines if line.get("heldout_perplexity") is not None]
    if not measured:
        return
    plot(measured, "heldout_perplexity", f"{prefix}held-out", marker="o", linewidth=2)
    if alone and measured[-1].get("heldout_backward") is not None:
        for direction, style in (("forward", "--"), ("backward", ":")):
            plot(measured, f"heldout_{direction}", f"held-out, {direction}", linestyle=style)
    best = min(measured, key=lambda line: line["heldout_perplexity"])
    label = f"{prefix}best: {best['heldout_perplexity']:,.1f} at step {best['step']:,}"
    star = {"marker": "*", "markersize": 14, "linestyle": "none"}
    plot([best], "heldout_perplexity", label, **star)


def _smooth(values: list[float], half: int) -> list[float]:
    """Geometric means over `half` points on either side: perplexities jump from batch to batch."""
    logs = [math.log(value) for value in values]
    windows = (logs[max(0, k - half) : k + half + 1] for k in range(len(logs)))
    return [math.exp(sum(window) / len(window)) for window in windows]


def _label_axes(axes: Axes) -> None:
    """Plain numbers, as many as there is room for."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullFormatter

    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high > 10 * low else range(1, 10)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _names(paths: list[str]) -> dict[str, str]:
    """The last part of each path, or the complete paths if these parts are not unique."""
    last = {path: os.path.basename(os.path.normpath(path)) for path in paths}
    return last if len(set(last.values())) == len(paths) else {path: path for path in paths}
