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
from bilm.errors import InputError
from bilm.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SMOOTHED = 4  # points of the log on either side, in runs that are long enough
_FORMATS = (".png", ".pdf", ".svg")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"runs RUN_DIR": "folder of a run, or its log"}, nargs="+")
    picture = "picture to write: .png, .pdf or .svg (default: curves.png)"
    flags.add(parser, {"--out FILE": picture}, default="curves.png")


def run(args: argparse.Namespace) -> int:
    if os.path.splitext(args.out)[1] not in _FORMATS:
        raise InputError(f"{args.out}: a file name that ends in {', '.join(_FORMATS)} is expected.")
    figure_class = _import_figure()
    import_tensorflow()
    from bilm.training.log import read_log

    runs = {name: read_log(name) for name in args.runs}
    figure = draw(figure_class, runs)
    with atomic_write(args.out) as temporary:
        figure.savefig(temporary, format=os.path.splitext(args.out)[1][1:], dpi=150)
    print(args.out)
    return 0


def _import_figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError(
            "bilm plot needs the package matplotlib: `pip install matplotlib` or "
            "`pip install 'bilm-keras[plot]'` does it."
        ) from error
    return Figure


def draw(figure_class: Any, runs: dict[str, list[dict[str, Any]]]) -> Figure:
    """A figure of the curves of runs.

    Args:
        figure_class: matplotlib's Figure, which needs no display.
        runs: name to the lines of the log.
    """
    figure = figure_class(figsize=(8, 5), layout="constrained")
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
    trained = [line for line in lines if line.get("train_perplexity") is not None]
    if trained:
        kind = "training, sampled softmax" if trained[-1].get("sampled") else "training"
        x = [_tokens(line) for line in trained]
        y = [line["train_perplexity"] for line in trained]
        half = min(_SMOOTHED, len(y) // 10)
        if half:  # the points themselves, behind the curve
            axes.plot(x, y, color=color, alpha=0.2, linewidth=0.6)
            kind += ", smoothed"
        curve = _smooth(y, half)
        axes.plot(x, curve, color=color, alpha=0.7, linewidth=1, label=f"{prefix}{kind}")
    measured = [line for line in lines if "heldout_perplexity" in line]
    if not measured:
        return
    x = [_tokens(line) for line in measured]
    held = "C1" if alone else color
    y = [line["heldout_perplexity"] for line in measured]
    axes.plot(x, y, color=held, marker="o", linewidth=2, label=f"{prefix}held-out")
    if alone and measured[-1].get("heldout_backward") is not None:
        for direction, style in (("forward", "--"), ("backward", ":")):
            curve = [line[f"heldout_{direction}"] for line in measured]
            axes.plot(x, curve, color=held, linestyle=style, label=f"held-out, {direction}")
    best = min(measured, key=lambda line: line["heldout_perplexity"])
    label = f"{prefix}best: {best['heldout_perplexity']:,.1f} at step {best['step']:,}"
    axes.plot(
        [_tokens(best)],
        [best["heldout_perplexity"]],
        color=held,
        marker="*",
        markersize=14,
        linestyle="none",
        label=label,
    )


def _tokens(line: dict[str, Any]) -> float:
    return line["tokens"]


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
    """The last part of each path, or the whole path where that would not tell them apart."""
    last = {path: os.path.basename(os.path.normpath(path)) for path in paths}
    return last if len(set(last.values())) == len(paths) else {path: path for path in paths}
