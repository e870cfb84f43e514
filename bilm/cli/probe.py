"""Measure how well each layer predicts labels: parts of speech, word senses, your own.

Label files are UTF-8 (plain or compressed), in one of three forms, which are detected:

  CoNLL-U                 the labels are in --column
  token TAB label         an empty line after each sentence
  label TAB sentence      occurrences of words: one word in [brackets]

For labels of tokens, a softmax is fitted on the vectors of each layer, on the mix of the layers
with learned weights, and on static vectors. The baselines are the most frequent label overall, and
for each word. In the control task each word has a random label; selectivity is the accuracy minus
the control task's accuracy (Hewitt and Liang, 2019).

For occurrences of words, each test occurrence gets a sense by comparison with the training
occurrences of the same word (--task tags fits softmaxes instead). --method prior weighs the
frequency of a sense against the similarity of its mean vector, by a factor chosen by
cross-validation on the training occurrences.

  bilm probe --train train.conllu --test test.conllu --model elmo --column UPOS
  bilm probe --train train.conllu --test test.conllu --model elmo \\
      --static vectors.txt --sizes 100,1000,all \\
      --out result.json --picture result.svg
  bilm probe --train train-uses.txt --test test-uses.txt --model elmo \\
      --method prior

After Ctrl-C, the same command computes the results that are missing from --out.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bilm import analysis
from bilm.cli import flags, text_command, word_command
from bilm.core.errors import InputError, differences
from bilm.files.reading import CONLLU
from bilm.files.writing import write_json
from bilm.progress import ProgressDisplay
from bilm.terminal import note, show, table

if TYPE_CHECKING:
    from bilm.use.elmo import ELMo

_TAGS, _SENSES = "tags", "senses"
_TAG_FLAGS = ("sizes", "seeds", "no_control")
_SENSE_FLAGS = ("method",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("labels")
    files = {"--train FILE": "labels to learn from", "--test FILE": "labels to measure with"}
    flags.add(group, files, required=True)
    flags.add(
        group,
        {
            "--column NAME": "label column of CoNLL-U: LEMMA, UPOS, XPOS, FEATS, DEPREL, or a "
            "feature such as Number (default: UPOS)",
            f"--task {_TAGS}|{_SENSES}": "fit softmaxes, or find senses (default: senses for "
            "occurrences of words, otherwise tags)",
            "--max_tokens N": "most labelled tokens per file; a larger file is sampled. Each token "
            "takes 4 * layers * dim bytes of memory (default: 300000)",
        },
    )
    text_command.add_elmo(parser)
    flags.add(parser, {"--static FILE": "static vectors to compare with, from `bilm static`"})
    tags, senses = parser.add_argument_group("tags"), parser.add_argument_group("senses")
    sizes = {"--sizes N,N,...": "numbers of training sentences, or `all` (default: all)"}
    flags.add(tags, sizes, type=_sizes)
    seeds = {"--seeds N": "repetitions with different sentences and control tasks (default: 3)"}
    flags.add(tags, seeds, type=flags.whole_number(1, bits=10))
    flags.add(
        tags,
        {
            "--no_control": "skip the control task: half the time",
        },
    )
    flags.add(
        senses,
        {
            "--method use|mean|prior": "use: the nearest training occurrence; mean: the nearest "
            "mean of a sense, as in the paper; prior: log frequency of a sense + kappa * cosine "
            "with its mean, where kappa is chosen by cross-validation (default: use)"
        },
    )
    flags.add(
        parser.add_argument_group("results"),
        {
            "--out FILE": "save results as JSON. For tags, each result is saved when it is "
            "computed, and an existing file is resumed",
            "--vectors FOLDER": "save the model's vectors there (train.npz, test.npz), and reuse "
            "existing ones",
            "--picture FILE": "draw the results: .png or .svg",
            **flags.FORCE,
        },
    )
    parser.set_defaults(column="UPOS", max_tokens=300_000)


def _sizes(text: str) -> tuple[int | None, ...]:
    """Parse "100,1000,all" into distinct sizes; "all" is None, and last."""
    parse = flags.whole_number(1)
    parts = [part.strip() for part in text.split(",")]
    numbers = sorted({parse(part) for part in parts if part != "all"})
    return (*numbers, *((None,) if "all" in parts else ()))


def run(args: argparse.Namespace) -> int:
    flags.model_source(args)
    flags.require_inputs(args)
    from bilm.analysis import labelled
    from bilm.analysis.probe_charts import check_picture

    if args.picture is not None:
        check_picture(args.picture)
    flags.outputs(args, picture=args.picture, updated=["out"])
    form, other_form = map(labelled.labelled_form, (args.train, args.test))
    if form != other_form:
        raise InputError(
            f"{args.test}: must have the form of {args.train} ({form}), got {other_form}."
        )
    task = args.task or (_SENSES if form == labelled.USES else _TAGS)
    if task == _SENSES and form != labelled.USES:
        flags.usage_error(args, "--task senses requires files of occurrences of words")
    other, names = (_TAGS, _TAG_FLAGS) if task == _SENSES else (_SENSES, _SENSE_FLAGS)
    flags.require_effect(args, f"--task {other}", *names)
    if form != CONLLU:
        flags.require_effect(args, "labels in CoNLL-U", "column")
    train, test = _read(args.train, args), _read(args.test, args)
    seen = {(train.sentences[number], position) for number, position in train.positions}
    n_seen = sum((test.sentences[number], position) in seen for number, position in test.positions)
    if n_seen:
        note(
            f"{args.test}: {n_seen:,} of {len(test):,} labelled tokens are in the same sentence in "
            f"{args.train}: on these, the probe measures memorisation."
        )
    if task == _SENSES:
        _senses(args, train, test)
    else:
        _tags(args, train, test)
    return 0


def _read(path: str, args: argparse.Namespace) -> analysis.Sample:
    text = analysis.read_labelled(path, args.column)
    sample = analysis.limited(text, args.max_tokens)
    summary = f"{path}: {len(sample.sentences):,} sentences, {len(sample):,} labelled tokens"
    if sample is not text:
        summary += f" (sampled from {len(text):,}; see --max_tokens)"
    note(f"{summary}, {len(set(sample.labels or ())):,} labels")
    return sample


def _static(
    args: argparse.Namespace, train: analysis.Sample, test: analysis.Sample
) -> analysis.StaticVectors | None:
    if args.static is None:
        return None
    sentences = itertools.chain(train.sentences, test.sentences)
    static = analysis.StaticVectors.load(args.static, keep={*itertools.chain(*sentences)})
    n_vectors = sum(test.word(k) in static for k in range(len(test)))
    note(f"{args.static}: {n_vectors / len(test):.1%} of the labelled test tokens have a vector")
    return static


def _encode(
    args: argparse.Namespace, elmo: ELMo, *texts: analysis.Sample, context: bool = False
) -> list[analysis.Occurrences]:
    files: list[str | None] = [None, None]
    if args.vectors is not None:
        if os.path.lexists(args.vectors) and not os.path.isdir(args.vectors):
            raise InputError(f"--vectors: {args.vectors} must be a folder or not exist.")
        os.makedirs(args.vectors, exist_ok=True)
        files = [os.path.join(args.vectors, f"{name}.npz") for name in ("train", "test")]
    for text, path in zip(texts, (args.train, args.test), strict=True):
        text_command.warn_of_unseen(elmo.model, text.sentences, path)
    with ProgressDisplay() as display:
        return [
            word_command.encode(elmo, text, display, context=context, file=file)
            for text, file in zip(texts, files, strict=True)
        ]


def _require_same(path: str, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Require that results were made with the same settings."""
    from bilm.files.identity import without_old_digests

    if other := differences(without_old_digests(theirs, ours), ours):
        raise InputError(
            f"{path}: must have been made with the same settings; {'; '.join(other)}. Name another "
            "file, or overwrite it with --force."
        )


def _settings(args: argparse.Namespace, task: str) -> dict[str, Any]:
    """The settings that the results depend on, except the model."""
    from bilm.files.reading import text_digest

    files = {name: getattr(args, name) for name in ("train", "test", "static")}
    return {
        "task": task,
        **{name: path and text_digest(path) for name, path in files.items()},
        **flags.keywords(args, "column", "max_tokens"),
    }


def _tags(args: argparse.Namespace, train: analysis.Sample, test: analysis.Sample) -> None:
    from bilm.analysis import probing
    from bilm.analysis.probe_charts import probe_chart, save_picture

    settings = probing.ProbeSettings(
        args.sizes or (None,), tuple(range(args.seeds or 3)), not args.no_control
    )
    n_sentences = len(train.sentences)
    probing.check_sizes(settings.sizes, n_sentences)
    static = _static(args, train, test)
    about = {**_settings(args, _TAGS), "control": settings.control}
    cells: dict[probing.Key, analysis.ProbeCell] = {}
    model = None  # of the cells
    if args.out is not None and os.path.exists(args.out) and not args.force:
        theirs, earlier = probing.read_cells(args.out)
        cells, model = {cell.key: cell for cell in earlier}, theirs.get("model")
        _require_same(args.out, theirs, about | {"model": model})
    elmo = text_command.load_model(args).elmo
    about["model"] = elmo.fingerprint()
    if cells:
        _require_same(args.out, about | {"model": model}, about)
    keys = probing.keys(probing.representations(elmo.n_layers, static is not None), settings)
    if not set(keys) <= set(cells):
        train_vectors, test_vectors = _encode(args, elmo, train, test)
        missing = probing.probe(
            train_vectors, test_vectors, settings, static=static, done=list(cells)
        )
        _measure(args, missing, cells, keys, about)
    results = [cells[key] for key in keys]
    if args.picture is not None:
        save_picture(probe_chart(results, n_sentences), args.picture)
        note(args.picture)
    _print_tables(results, n_sentences, len(settings.seeds))


def _measure(
    args: argparse.Namespace,
    missing: Iterable[analysis.ProbeCell],
    cells: dict[Any, analysis.ProbeCell],
    keys: Sequence[Any],
    about: dict[str, Any],
) -> None:
    """Add the missing cells, and save all after each."""
    from bilm.analysis.probing import write_cells

    def n_done() -> int:
        return sum(key in cells for key in keys)

    try:
        with ProgressDisplay() as display:
            display.update("probing cells", n_done(), len(keys))
            for cell in missing:
                cells[cell.key] = cell
                if args.out is not None:
                    write_cells(args.out, about, cells.values())
                display.update("probing cells", n_done(), len(keys))
    except KeyboardInterrupt:
        if args.out is None:
            raise
        raise KeyboardInterrupt(
            f"{args.out} has {n_done()} of {len(keys)} cells; the same command continues from it."
        ) from None


def _print_tables(cells: Sequence[analysis.ProbeCell], n_sentences: int, n_seeds: int) -> None:
    """A table for each measure, and the weights of the mix."""
    from bilm.analysis.probing import Summary, mix_weights, summarised

    def cell_text(value: Summary, factor: int, digits: int) -> str:
        mean, deviation = (f"{number * factor:.{digits}f}" for number in value)
        return f"{mean} ± {deviation}" if n_seeds > 1 else mean

    spread = f"mean and standard deviation of {n_seeds} seeds" if n_seeds > 1 else "one seed"
    selectivity = "selectivity: accuracy minus accuracy on the control task"
    mix = {(f"layer {number}", size): layer
           for size, layers in mix_weights(cells).items()
           for number, layer in enumerate(layers)}  # fmt: skip
    gamma = summarised(cells, lambda cell: cell.gamma)
    mix |= {("gamma", size): value for (_, size), value in gamma.items()}
    sizes = list(dict.fromkeys(cell.size for cell in cells))
    head = ["training sentences", *(f"{s:,}" if s else f"all {n_sentences:,}" for s in sizes)]
    for title, summaries, factor, digits in (
        (f"accuracy, % ({spread})", summarised(cells, lambda cell: cell.accuracy), 100, 1),
        (f"{selectivity}, % ({spread})", summarised(cells, lambda cell: cell.selectivity), 100, 1),
        (f"macro-F1, % ({spread})", summarised(cells, lambda cell: cell.macro_f1), 100, 1),
        ("weights of the layers in the mix", mix, 1, 2),
    ):
        names = dict.fromkeys(name for name, _ in summaries)
        rows = [[name, *(cell_text(summaries[name, size], factor, digits) for size in sizes)]
                for name in names]  # fmt: skip
        if rows:
            show([title, *table([head, *rows]), ""])


def _senses(args: argparse.Namespace, train: analysis.Sample, test: analysis.Sample) -> None:
    """Find senses by comparison with training occurrences."""
    from bilm.analysis import word_sense
    from bilm.analysis.probe_charts import save_picture, sense_chart

    flags.outputs(args, out=args.out, picture=args.picture)
    settings = word_sense.SenseSettings(args.method or "use")
    static = _static(args, train, test)
    elmo = text_command.load_model(args).elmo
    train_uses, test_uses = _encode(args, elmo, train, test, context=True)
    rows = word_sense.sense_table(train_uses, test_uses, settings, static=static)
    first = word_sense.first_sense(train_uses, test_uses)
    note(
        f"{len(test):,} occurrences; the word is in training for {first.seen.mean():.1%} of them, "
        f"with several senses for {first.ambiguous.mean():.1%}"
    )
    if args.picture is not None:
        save_picture(sense_chart(rows), args.picture)
        note(args.picture)
    if args.out is not None:
        about = {**_settings(args, _SENSES), "model": elmo.fingerprint()}
        about["method"] = settings.method
        write_json(args.out, {"settings": about, "rows": [row._asdict() for row in rows]})
    show(["accuracy, %", *table(word_sense.as_cells(rows))])
