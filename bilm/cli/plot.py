"""Draw the curves of training runs as a picture.

Reads the logs that `bilm train` writes (train_log.jsonl), and draws the training perplexity and, if
it was measured, the held-out perplexity over the number of training tokens seen. Needs the package
matplotlib.

  bilm plot model --out curves.png
  bilm plot model-a model-b --out both.png
"""

import argparse
import math
from typing import Any

from bilm import analysis
from bilm.cli import flags
from bilm.core.errors import import_extra
from bilm.files.run_log import read_log

_SMOOTHED = 4  # points of the log on either side, in runs that are long enough


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"runs RUN_DIR ...": "folder of a run, or its log"})
    picture = "picture to write: .png, .pdf or .svg (default: curves.png)"
    flags.add(parser, {"--out FILE": picture}, default="curves.png")
    flags.add(parser, flags.FORCE)


def run(args: argparse.Namespace) -> int:
    ending = analysis.picture_ending(args.out, (".png", ".pdf", ".svg"))
    runs = {name: read_log(name) for name in args.runs}
    outputs = flags.outputs(args, out=args.out)
    import_extra("matplotlib.figure", "bilm plot")
    import matplotlib

    with (
        outputs.temporaries() as (temporary,),
        matplotlib.rc_context({"text.parse_math": False}),  # names of folders are not formulas
    ):
        draw_curves(runs).savefig(temporary, dpi=150, format=ending[1:])
    print(args.out)
    return 0


def draw_curves(runs: dict[str, list[dict[str, Any]]]) -> Any:
    """A `matplotlib.figure.Figure` of the curves of runs, {name: lines of the log}."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullFormatter

    from bilm.analysis.pictures import legend_label, new_figure

    figure = new_figure(8, 5)
    axes = figure.subplots()
    axes.set_yscale("log")
    for number, (name, lines) in enumerate(runs.items()):
        prefix = legend_label(f"{name}: ") if len(runs) > 1 else ""
        _draw_run(axes, lines, prefix, number, len(runs) == 1)
    axes.set_xlabel("training tokens seen")
    axes.set_ylabel("perplexity")
    # Plain numbers, as many as fit.
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high > 10 * low else range(1, 10)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, fontsize="small")
    if len(runs) == 1:
        axes.set_title(next(iter(runs)))
    return figure


def _draw_run(
    axes: Any, lines: list[dict[str, Any]], prefix: str, number: int, alone: bool
) -> None:
    """The curves of a run: training thin, held-out thick, the best one marked."""
    colour = "C1" if alone else f"C{number}"

    def points(key: str) -> tuple[list[int], list[float]]:
        entries = [line for line in lines if _is_perplexity(line.get(key))]
        return [line["tokens"] for line in entries], [line[key] for line in entries]

    tokens, perplexities = points("train_perplexity")
    if tokens:
        sampled = any(line.get("sampled") for line in lines)
        label = f"{prefix}training{', sampled softmax' if sampled else ''}"
        half = min(_SMOOTHED, len(tokens) // 10)
        if half:  # the points themselves, behind the curve
            axes.plot(tokens, perplexities, color=f"C{number}", alpha=0.2, linewidth=0.6)
            label += ", smoothed"
        smooth = _smooth(perplexities, half)
        axes.plot(tokens, smooth, color=f"C{number}", alpha=0.7, linewidth=1, label=label)
    evaluations = [line for line in lines if _is_perplexity(line.get("heldout_perplexity"))]
    if not evaluations:
        return
    axes.plot(
        *points("heldout_perplexity"), "o-", color=colour, linewidth=2, label=f"{prefix}held-out"
    )
    if alone and points("heldout_backward")[0]:
        for direction, style in (("forward", "--"), ("backward", ":")):
            curve = points(f"heldout_{direction}")
            axes.plot(*curve, style, color=colour, label=f"held-out, {direction}")
    best = min(evaluations, key=lambda line: line["heldout_perplexity"])
    y = best["heldout_perplexity"]
    label = f"{prefix}best: {y:,.1f} at step {best['step']:,}"
    axes.plot([best["tokens"]], [y], "*", color=colour, markersize=14, label=label)


def _is_perplexity(value: Any) -> bool:
    return isinstance(value, int | float) and 0 < value < math.inf


def _smooth(values: list[float], half: int) -> list[float]:
    """Geometric means over `half` points on either side: perplexities jump from batch to batch."""
    logs = [math.log(value) for value in values]
    windows = (logs[max(0, k - half) : k + half + 1] for k in range(len(logs)))
    return [math.exp(sum(window) / len(window)) for window in windows]
