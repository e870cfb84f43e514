"""`bilm plot`: the curves of runs."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from bilm import InputError
from bilm.cli import main
from bilm.core.errors import import_extra
from bilm.files.run_log import RunLog, read_log
from tests.command_line import input_error


def write_run(folder: Path, sampled: bool = True, heldout: bool = True) -> str:
    log = RunLog(folder)
    for step in range(10, 400, 10):
        log.write(step=step, train_perplexity=900 / step + 50 + step % 7, sampled=sampled,
                  tokens=step * 2560)  # fmt: skip
        if heldout and step % 100 == 0:
            log.write(step=step, heldout_perplexity=2e4 / step + 90, heldout_forward=2e4 / step,
                      heldout_backward=2e4 / step + 180, best=True, tokens=step * 2560)  # fmt: skip
    return str(folder)


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_plot_draws_runs(ending, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", False, False)]
    out = str(tmp_path / f"curves.{ending}")
    assert main(["plot", *runs, "--out", out]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    beginning = Path(out).read_bytes()[:5]
    assert beginning == (b"\x89PNG\r" if ending == "png" else b"<?xml")


def labels_of(tmp_path, **runs):
    """Plot runs; return the entries of the legend, and the axes."""
    from bilm.cli.plot import draw_curves

    pytest.importorskip("matplotlib.figure")
    logs = {name: read_log(write_run(tmp_path / name, **run)) for name, run in runs.items()}
    figure = draw_curves(logs)
    return [text.get_text() for text in figure.legends[0].get_texts()], figure.axes[0]


def test_the_legend_of_a_run(tmp_path):
    labels, axes = labels_of(tmp_path, only={})
    assert labels == [
        "training, sampled softmax, smoothed",
        "held-out",
        "held-out, forward",
        "held-out, backward",
        "best: 156.7 at step 300",
    ]
    assert axes.get_title() == "only" and axes.get_ylabel() == "perplexity"
    assert axes.get_xlabel() == "training tokens seen"


def test_the_legend_of_two_runs(tmp_path):
    labels, axes = labels_of(tmp_path, a={}, b={"sampled": False, "heldout": False})
    assert labels == [
        "a: training, sampled softmax, smoothed",
        "a: held-out",
        "a: best: 156.7 at step 300",
        "b: training, smoothed",
    ]
    assert axes.get_title() == ""


def test_names_that_matplotlib_reads_as_formulas_or_hides(tmp_path):
    labels, _ = labels_of(tmp_path, _a={"heldout": False}, b={"heldout": False})
    assert [label.strip().partition(":")[0] for label in labels] == ["_a", "b"]
    run = write_run(tmp_path / "x$\\frac$")
    assert main(["plot", run, "--out", str(tmp_path / "curves.svg")]) == 0


def test_the_curve_of_a_short_run_is_that_of_its_points(tmp_path):
    log = RunLog(tmp_path / "short")
    for step, perplexity in ((1, 50.0), (10, 40.0), (20, 20.0)):
        log.write(step=step, train_perplexity=perplexity, sampled=False, tokens=step)
    from bilm.cli.plot import draw_curves

    pytest.importorskip("matplotlib.figure")
    axes = draw_curves({"short": read_log(tmp_path / "short")}).axes[0]
    (line,) = axes.lines
    np.testing.assert_allclose(line.get_ydata(), [50, 40, 20])
    assert line.get_label() == "training"


def test_lines_without_all_of_the_numbers(tmp_path):
    log = RunLog(tmp_path / "run")
    log.write(step=1, tokens=1, heldout_perplexity=9.0)
    log.write(step=2, tokens=2, heldout_perplexity=None, train_perplexity=30.0)
    log.write(step=3, tokens=3, heldout_perplexity=8.0, heldout_forward=7, heldout_backward=9)
    from bilm.cli.plot import draw_curves

    pytest.importorskip("matplotlib.figure")
    lines = draw_curves({"run": read_log(tmp_path / "run")}).axes[0].lines
    assert [len(line.get_xdata()) for line in lines] == [1, 2, 1, 1, 1]


def test_matplotlib_that_is_missing_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    error = input_error(["plot", write_run(tmp_path)], capsys)
    assert "bilm plot needs the Python module matplotlib: `pip install matplotlib`" in error


def test_a_broken_package(tmp_path, monkeypatch):
    (tmp_path / "seqeval").mkdir()
    (tmp_path / "seqeval" / "__init__.py").write_text("import a_missing_module\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "seqeval", raising=False)
    with pytest.raises(InputError, match=r"installed but cannot be imported: .*a_missing_module"):
        import_extra("seqeval", "this task")
