"""Measure what each layer of a model knows of labels: parts of speech, word senses, one's own.

The files of labels are UTF-8 (plain, .gz, .xz), of one of three forms that are told apart by their
content:

  CoNLL-U                 the labels are in --column
  token TAB label         an empty line after each sentence
  label TAB sentence      uses of words, with one word in [brackets]

For labels of tokens, a softmax is fitted on the vectors of each layer, on the mix of the layers
with weights that are learned with it, and on static vectors. The baselines are the most frequent
label of all, and that of each word. In the control task each word has a random label; selectivity
is the accuracy less that of the control task (Hewitt and Liang, 2019).

For uses of words, each test use gets the sense of the nearest training use of the same word.
--task tags fits softmaxes to them as well.

  bilm probe --train train.conllu --test test.conllu --model elmo --column UPOS
  bilm probe --train train.conllu --test test.conllu --model elmo --static vectors.txt \\
      --sizes 100,1000,all --out result.json --picture result.svg
  bilm probe --train train-uses.txt --test test-uses.txt --model elmo

After Ctrl-C the same command continues with the results that --out does not have yet.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from bilm.analysis.commands import word_job
from bilm.cli import flags, text_job
from bilm.cli.terminal import note
from bilm.core.errors import InputError
from bilm.files.reading import require_file
from bilm.files.writing import require_place, write_json
from bilm.progress import ProgressDisplay

if TYPE_CHECKING:
    from bilm.analysis import Occurrences, ProbeCell, Sample, StaticVectors
    from bilm.use.elmo import ELMo

_TAGS, _SENSES = "tags", "senses"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("labels")
    files = {"--train FILE": "labels to learn from", "--test FILE": "labels to measure with"}
    flags.add(group, files, required=True)
    flags.add(
        group,
        {
            "--column NAME": "of CoNLL-U: LEMMA, UPOS, XPOS, FEATS, DEPREL, or a feature such as "
            "Number (default: UPOS)",
            f"--task {_TAGS}|{_SENSES}": "fit softmaxes, or take the sense of the nearest use "
            "(default: senses for uses of words, else tags)",
            "--max_tokens N": "labelled tokens of each file, at most; of a larger one, sentences "
            "are drawn. In memory are 4 * layers * dim bytes for each (default: 300000)",
        },
    )
    word_job.add_model(parser)
    group = parser.add_argument_group("what is measured")
    static = "static vectors to compare with, as `bilm static` has them"
    flags.add(group, {"--static FILE": static})
    sizes = "training sentences, drawn by seed; `all` takes all of them (default: all)"
    flags.add(group, {"--sizes N,N,...": sizes}, type=_sizes)
    flags.add(
        group,
        {
            "--seeds N": "repetitions, each with other sentences and another control task "
            "(default: 3)",
            "--no_control": "leave out the control task: half the time",
            "--nearest use|mean": "for senses: compare with each use, or with the mean of each "
            "sense as the paper does (default: use)",
        },
    )
    flags.add(
        parser.add_argument_group("results"),
        {
            "--out FILE": "write all numbers to this JSON file, while they are computed; a file "
            "that is there is continued",
            "--vectors FOLDER": "keep the model's vectors there (train.npz, test.npz), and use "
            "those that are there",
            "--picture FILE": "draw the results: .png or .svg",
            **flags.FORCE,
        },
    )
    parser.set_defaults(column="UPOS", max_tokens=300_000)


def _sizes(text: str) -> tuple[int | None, ...]:
    """The sizes of "100,1000,all", each once, the whole text last."""
    parse = flags.whole_number(1)
    parts = [part.strip() for part in text.split(",")]
    numbers = sorted({parse(part) for part in parts if part != "all"})
    return (*numbers, *((None,) if "all" in parts else ()))


def run(args: argparse.Namespace) -> int:
    flags.model_source(args)
    from bilm.analysis import labelled
    from bilm.analysis.probe_charts import check_picture

    if args.picture is not None:
        check_picture(args.picture)
        flags.require_free(args, args.picture)
    if args.out is not None:
        require_place(args.out)
    forms = [labelled.labelled_form(path) for path in (args.train, args.test)]
    if forms[0] != forms[1]:
        raise InputError(
            f"{args.test}: a file of the form of {args.train} is expected ({forms[0]}), not "
            f"{forms[1]}."
        )
    is_uses = forms[0] == labelled.USES
    task = args.task or (_SENSES if is_uses else _TAGS)
    if task == _SENSES:
        if not is_uses:
            flags.usage_error(args, "--task senses goes with files of uses of words")
        for name in ("sizes", "seeds"):
            if getattr(args, name) is not None:
                flags.usage_error(args, f"--{name} goes with --task tags")
    elif args.nearest is not None:
        flags.usage_error(args, "--nearest goes with --task senses")
    if args.static is not None:
        require_file(args.static, "file of static vectors")
    texts = [_read(path, args) for path in (args.train, args.test)]
    _note_overlap(args, *texts)
    (_senses if task == _SENSES else _tags)(args, *texts)
    return 0


def _read(path: str, args: argparse.Namespace) -> Sample:
    from bilm.analysis.labelled import limited, read_labelled

    text = read_labelled(path, args.column)
    kept = limited(text, args.max_tokens)
    said = f"{path}: {len(kept.sentences):,} sentences, {len(kept):,} labelled tokens"
    if kept is not text:
        said += f" (drawn of {len(text):,}; see --max_tokens)"
    note(f"{said}, {len(set(kept.labels or ())):,} labels")
    return kept


def _note_overlap(args: argparse.Namespace, train: Sample, test: Sample) -> None:
    """Say how much of the test text is in the training text as well."""
    numbers = {tuple(sentence): k for k, sentence in enumerate(train.sentences)}
    seen = {(numbers[train.sentences[k]], position) for k, position in train.positions}
    known = [numbers.get(sentence) for sentence in test.sentences]
    n_seen = sum((known[k], position) in seen for k, position in test.positions)
    if n_seen:
        note(
            f"{args.test}: {n_seen:,} of {len(test):,} labelled tokens stand in the same sentence "
            f"in {args.train}: of those, what is measured is memory."
        )


def _static(args: argparse.Namespace, texts: Sequence[Sample]) -> StaticVectors | None:
    """The static vectors of the words of the texts."""
    if args.static is None:
        return None
    from bilm.analysis import StaticVectors

    words = {token for text in texts for sentence in text.sentences for token in sentence}
    static = StaticVectors.load(args.static, keep=words)
    test = texts[-1]
    known = sum(test.sentences[number][position] in static for number, position in test.positions)
    note(f"{args.static}: {known / len(test):.1%} of the labelled tokens of the test have a vector")
    return static


def _encode(
    args: argparse.Namespace, elmo: ELMo, train: Sample, test: Sample
) -> tuple[Occurrences, Occurrences]:
    """Both texts with the model's vectors."""
    files: list[str | None] = [None, None]
    if args.vectors is not None:
        os.makedirs(args.vectors, exist_ok=True)
        files = [os.path.join(args.vectors, name) for name in ("train.npz", "test.npz")]
    with ProgressDisplay() as display:
        return (
            word_job.encode(elmo, train, display, files[0]),
            word_job.encode(elmo, test, display, files[1]),
        )


def _settings(args: argparse.Namespace, elmo: ELMo, task: str) -> dict[str, Any]:
    from bilm.analysis.probe_file import checksum

    return {
        "task": task,
        "model": elmo.fingerprint(),
        "train": checksum(args.train),
        "test": checksum(args.test),
        "column": args.column,
        "max_tokens": args.max_tokens,
        "static": None if args.static is None else checksum(args.static),
    }


def _tags(args: argparse.Namespace, train: Sample, test: Sample) -> None:
    """Fit softmaxes."""
    from bilm.analysis import probing
    from bilm.analysis.probe_charts import probe_chart, save_picture
    from bilm.analysis.probe_file import ProbeFile

    settings = probing.ProbeSettings(
        args.sizes or (None,), tuple(range(args.seeds or 3)), not args.no_control
    )
    n_sentences = len(train.sentences)
    probing.check_sizes(settings.sizes, n_sentences)
    static = _static(args, (train, test))
    elmo = text_job.load_elmo(args)
    about = {**_settings(args, elmo, _TAGS), "control": settings.control}
    file = ProbeFile(args.out, about, fresh=args.force)
    wanted = probing.keys(probing.representations(elmo.n_layers, static is not None), settings)
    if any(key not in file.cells for key in wanted):
        texts = _encode(args, elmo, train, test)
        missing = probing.probe(texts[0], texts[1], settings, static=static, done=file.cells)
        _fill(file, missing, wanted, _costs(wanted, train, elmo.n_layers))
    cells = [file.cells[key] for key in wanted]
    _print_tables(cells, n_sentences, len(settings.seeds))
    if args.picture is not None:
        save_picture(probe_chart(cells, n_sentences), args.picture)
        note(args.picture)


def _costs(
    wanted: Sequence[tuple[str, int | None, int]], train: Sample, n_layers: int
) -> dict[tuple[str, int | None, int], int]:
    """How much work a cell is, in steps of fitting one layer; see `n_steps`."""
    from bilm.analysis.probing import MAJORITY, MIX, WORD_MAJORITY
    from bilm.analysis.softmax_probe import n_steps

    mean = len(train) / len(train.sentences)
    costs = {}
    for name, size, seed in wanted:
        n_tokens = len(train) if size is None else round(size * mean)
        factor = {MAJORITY: 0, WORD_MAJORITY: 0, MIX: n_layers}.get(name, 1)
        costs[name, size, seed] = factor * n_steps(n_tokens)
    return costs


def _fill(file: Any, cells: Any, wanted: Sequence[Any], costs: dict[Any, int]) -> None:
    """Compute the cells that are missing, keeping each of them."""
    total = sum(costs.values())
    try:
        with ProgressDisplay() as display:
            while True:
                done = sum(costs[key] for key in wanted if key in file.cells)
                n_done = sum(key in file.cells for key in wanted)
                detail = f"{n_done} of {len(wanted)} cells"
                display.update("probing", done, total, "steps", detail)
                cell = next(cells, None)
                if cell is None:
                    break
                file.add(cell)
    except KeyboardInterrupt:
        if file.path is None:
            raise
        n_done = sum(key in file.cells for key in wanted)
        raise KeyboardInterrupt(
            f"{file.path} has {n_done} of {len(wanted)} cells; the same command continues from it."
        ) from None


def _print_tables(cells: Sequence[ProbeCell], n_sentences: int, n_seeds: int) -> None:
    """A table for each measure, and the weights of the mix."""
    from bilm.analysis.probing import mix_weights, summarised

    spread = f"mean and standard deviation of {n_seeds} seeds" if n_seeds > 1 else "one seed"
    measures: dict[str, Callable[[ProbeCell], float | None]] = {
        "accuracy": lambda cell: cell.accuracy,
        "selectivity: accuracy less that of the control task": lambda cell: cell.selectivity,
        "macro-F1": lambda cell: cell.macro_f1,
    }
    sizes = list(dict.fromkeys(cell.size for cell in cells))
    names = list(dict.fromkeys(cell.representation for cell in cells))
    heads = [f"{size:,}" if size else f"all {n_sentences:,}" for size in sizes]
    for title, measure in measures.items():
        found = summarised(cells, measure)
        if not found:
            continue
        print(f"{title}, per cent ({spread})")
        _print_row("training sentences", heads)
        for name in names:
            row = [found.get((name, size)) for size in sizes]
            if any(row):
                _print_row(name, [_shown(value, n_seeds, 100, 1) for value in row])
        print()
    weights = mix_weights(cells)
    if weights:
        print("weights of the layers in the mix")
        _print_row("training sentences", heads)
        for layer in range(len(next(iter(weights.values())))):
            row = [weights[size][layer] for size in sizes]
            _print_row(f"layer {layer}", [_shown(value, n_seeds, 1, 2) for value in row])
        gamma = summarised(cells, lambda cell: cell.gamma)
        row = [gamma.get(("mix", size)) for size in sizes]
        _print_row("gamma", [_shown(value, n_seeds, 1, 2) for value in row])


def _print_row(name: str, values: Sequence[str]) -> None:
    print(f"{name:<20}" + "".join(f"{value:>15}" for value in values))


def _shown(value: Any, n_seeds: int, factor: float, digits: int) -> str:
    if value is None:
        return "-"
    shown = f"{value.mean * factor:.{digits}f}"
    return f"{shown} ± {value.deviation * factor:.{digits}f}" if n_seeds > 1 else shown


def _senses(args: argparse.Namespace, train: Sample, test: Sample) -> None:
    """Find senses by the nearest use."""
    from bilm.analysis import word_sense
    from bilm.analysis.probe_charts import save_picture, sense_chart

    flags.require_free(args, args.out)
    static = _static(args, (train, test))
    elmo = text_job.load_elmo(args)
    how = word_sense.SenseSettings(**({"nearest": args.nearest} if args.nearest else {}))
    uses, asked = _encode(args, elmo, train, test)
    rows = word_sense.sense_table(uses, asked, how, static=static)
    known = word_sense.first_sense(uses, asked)
    print(
        f"{len(test):,} uses; the word of {known.seen.mean():.1%} is in training, that of "
        f"{known.ambiguous.mean():.1%} with several senses. Accuracy, per cent"
    )
    _print_row("", ["all", "several senses"])
    for row in rows:
        several = row.ambiguous_accuracy
        shown = "-" if several is None else f"{several * 100:.1f}"
        _print_row(row.representation, [f"{row.accuracy * 100:.1f}", shown])
    if args.out is not None:
        settings = {**_settings(args, elmo, _SENSES), "nearest": how.nearest}
        write_json(args.out, {"settings": settings, "rows": [row._asdict() for row in rows]})
    if args.picture is not None:
        save_picture(sense_chart(rows), args.picture)
        note(args.picture)
