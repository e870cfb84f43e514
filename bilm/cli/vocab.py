"""Count the words of a corpus and write its vocabulary.

The corpus is UTF-8 text (plain or compressed), tokens separated by spaces, or CoNLL-U. The
vocabulary is <S>, </S>, <UNK>, then the words by descending frequency, ties in the order of
their characters. Memory grows with the number of different words, not with the size of the text.
Prints the number of tokens and of types (different words), the number of words kept, and the
percentage of tokens that they cover.

  bilm vocab 'corpus/train-*.txt' --out vocab.txt --min_count 3
"""

import argparse

from bilm.cli import flags
from bilm.progress import ProgressDisplay
from bilm.terminal import count, note


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, flags.TEXTS)
    flags.add(parser, {"--out FILE": "vocabulary to write"}, required=True)
    flags.add(
        parser,
        {
            "--min_count N": "leave out words that occur less often (default: 1)",
            "--max_size N>=4": "keep only the most frequent words: at most N lines, with the three "
            "special tokens",
            **flags.FORCE,
            "--jobs N": "processes that count (default: one per CPU); the result is the same",
        },
    )
    parser.set_defaults(min_count=1)


def run(args: argparse.Namespace) -> int:
    from bilm.data.counting import MAX_CHARACTERS, build_vocabulary
    from bilm.data.prefetch import n_processors

    flags.outputs(args, out=args.out)
    with ProgressDisplay() as display:
        report = build_vocabulary(
            args.files,
            args.out,
            min_count=args.min_count,
            max_size=args.max_size,
            jobs=args.jobs or n_processors(),
            progress=display.show,
            overwrite=args.force,
        )
    print(f"tokens      {report.n_tokens:,}")
    print(f"types       {report.n_types:,}")
    print(f"words kept  {report.n_words:,} (and 3 special tokens)")
    print(f"coverage    {100 * report.coverage:.2f} % of the tokens")
    if report.n_cut_types:
        note(
            f"{count(report.n_cut_types, 'type')} ({report.n_cut_tokens / report.n_tokens:.2%} of "
            f"the tokens) of more than {MAX_CHARACTERS - 2} bytes will be cut, unless "
            f"max_characters_per_token is more than {MAX_CHARACTERS} in the options of the model."
        )
    return 0
