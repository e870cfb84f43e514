"""Counting the words of files side by side, in bounded memory, exactly."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from bilm.data.sorted_runs import SortedRuns
from bilm.data.text_files import ShowStage, Span, Stage, cut_into_parts, on_disk, read_blocks
from bilm.errors import InputError
from bilm.files import PathLike

# Parts of the corpus a process: the last ones end at about the same time.
_PARTS_PER_JOB = 8
_SECONDS_BETWEEN_LOOKS = 0.2


def count_files(
    files: Sequence[str], folder: PathLike, *, jobs: int, max_distinct: int, progress: ShowStage
) -> SortedRuns:
    """The words of files and how often each occurs, on the disk, to be read sorted by word.

    Whenever a process holds its share of `max_distinct` different words, they are sorted and
    written out, and all that was written is merged in the end. Nothing is forgotten, so that the
    result depends neither on the bound nor on the number of processes nor on the files' order.

    Args:
        folder: an empty folder for files in between; it has to outlive what is returned.
        jobs: processes. They are started anew, so a program that asks for more than one has to
            keep its own start behind `if __name__ == "__main__":`.
        max_distinct: different words held in memory, in all processes together.
        progress: is told of the bytes read.

    Raises:
        InputError: a file is not UTF-8 (file and line) or damaged, or a process was killed.
    """
    parts = cut_into_parts(files, 1 if jobs == 1 else jobs * _PARTS_PER_JOB)
    jobs = max(1, min(jobs, len(parts)))
    limit = max(1, max_distinct // jobs)
    total = on_disk(files)

    def show(done: int) -> None:
        progress(Stage("counting", done, total, "bytes"))

    show(0)
    runs = SortedRuns(folder)
    if jobs == 1:
        spans = [span for part in parts for span in part]
        runs.adopt(_count_spans(spans, folder, limit, _Sum(show)))
    else:
        for run in _count_side_by_side(parts, folder, limit, jobs, show):
            runs.adopt(run)
    show(total)
    return runs


class _Sum:
    """Adds up what is reported to it and passes the sum on."""

    def __init__(self, show: Callable[[int], None]) -> None:
        self._show = show
        self._sum = 0

    def __call__(self, n_bytes: int) -> None:
        self._sum += n_bytes
        self._show(self._sum)


def _count_spans(
    spans: Sequence[Span], folder: PathLike, limit: int, report: Callable[[int], None]
) -> str:
    """Count the words of spans into one sorted run; gives its path."""
    runs = SortedRuns(folder)
    counts: Counter[str] = Counter()
    for span in spans:
        for text in read_blocks(span, report):
            counts.update(text.split())
            if len(counts) > limit:
                runs.add(counts.items())
                counts = Counter()
    runs.add(counts.items())
    return runs.collapse()


def _count_side_by_side(
    parts: Sequence[Sequence[Span]],
    folder: PathLike,
    limit: int,
    jobs: int,
    show: Callable[[int], None],
) -> list[str]:
    """Count each part in one of `jobs` processes; gives the parts' runs."""
    # A fork of a process with threads, such as TensorFlow's, may hang.
    context = multiprocessing.get_context("spawn")
    done, stop = context.Value("q", 0), context.Event()
    with ProcessPoolExecutor(jobs, context, _enter_process, (done, stop)) as pool:
        try:
            count = functools.partial(_count_in_process, folder=folder, limit=limit)
            with _interrupts_held_back():
                futures = [pool.submit(count, part) for part in parts]
            _wait_for(futures, lambda: show(done.value))
            return [future.result() for future in futures]
        except BrokenProcessPool:
            raise InputError(
                "A process that counted was killed, perhaps for want of memory: fewer jobs, or a "
                "lower max_distinct, need less."
            ) from None
        finally:
            # After an error the others end at their next block.
            stop.set()
            pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Ctrl-C reaches every process of the terminal: those started here never see it.

    The one that starts them sees it at the end of the block, and then tells the others.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait_for(futures: Sequence[Future[str]], look: Callable[[], None]) -> None:
    """Look now and then, until all have ended or one has failed, whose error is raised."""
    waiting = set(futures)
    while waiting:
        ended, waiting = wait(waiting, _SECONDS_BETWEEN_LOOKS, FIRST_EXCEPTION)
        look()
        for future in ended:
            future.result()


# What a counting process shares with the one that started it: set at its start, and only there.
_shared: list[Any] = []


def _enter_process(done: Any, stop: Any) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _shared[:] = done, stop


def _end_with_parent() -> None:
    """A process that was killed cannot tell the others, which would wait for it for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        signal.raise_signal(signal.SIGTERM)


def _count_in_process(spans: Sequence[Span], *, folder: PathLike, limit: int) -> str:
    return _count_spans(spans, folder, limit, _report_to_parent)


def _report_to_parent(n_bytes: int) -> None:
    done, stop = _shared
    if stop.is_set():
        raise InterruptedError("Counting was given up.")
    with done.get_lock():
        done.value += n_bytes
