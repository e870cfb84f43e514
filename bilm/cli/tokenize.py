"""Tokenise raw text: one sentence per line, tokens separated by spaces.

IN is UTF-8 text, plain or compressed. The text is normalised to NFC; white space and invisible
characters (soft hyphens, marks of direction, byte order marks) are dropped. The sequences of FASTA
become sentences of residues, and CoNLL-U keeps its tokens; both are recognised. OUT is compressed
if its name ends in .gz or .xz. The tokenizer's name is kept in OUT.tokenizer.json and later in the
model, so that `bilm embed` can read raw text in the same way. OUT appears when it is complete; if
interrupted, the command starts again from the beginning. With - as IN and as OUT, text goes from
standard input to standard output.

  bilm tokenize novel.txt novel.tokens.txt --language en
  bilm tokenize 'news/*.txt.gz' news.tokens.txt.gz --language zh
  bilm tokenize news.txt news.characters.txt --language zh --method characters
  bilm tokenize proteins.fasta proteins.txt
"""

import argparse
import shlex
import sys
from collections import Counter
from typing import NoReturn

from bilm.cli import flags, text_command
from bilm.cli.text_command import STANDARD
from bilm.core.errors import InputError
from bilm.data.tokenizer import ANY_LANGUAGE
from bilm.files.reading import COLUMNS, CONLLU, FASTA, PLAIN, find_all_files, open_text, plain_start
from bilm.progress import ProgressDisplay
from bilm.terminal import count

_MEANING = {
    "sentence": "one sentence each",
    "paragraph": "one paragraph each",
    "wrapped": "parts of paragraphs",
    FASTA: "protein sequences",
    CONLLU: "CoNLL-U, whose tokens stay as they are",
    COLUMNS: "columns, whose tokens stay as they are",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"files IN ...": "raw text: files or globs", "out OUT": "file to write"})
    language = (
        "language of the text, as its ISO code: en, zh, de, hi ...; xx is any language with spaces "
        "between words; not needed for FASTA and CoNLL-U"
    )
    flags.add(parser, {"--language CODE": language})
    flags.add(
        parser,
        {
            "--method rules|characters|jieba|spacy|residues": "how sentences are split: rules, "
            "built-in rules; characters, where each Chinese (Japanese, Thai ...) character is a "
            "token; jieba, Chinese words, with the package jieba; spacy, spaCy's rules for the "
            "language, with the package spacy; residues, where each letter is a token (default: "
            "jieba for zh, residues for FASTA, rules for other languages)",
            "--lines sentence|paragraph|wrapped": "content of a line: one sentence; a "
            "paragraph of several; or part of a paragraph that ends at a blank line (default: "
            "detected from the first 2,000 lines of each file)",
            **text_command.COLUMN,
            **flags.FORCE,
            "--jobs N": "processes that split the text (default: one per CPU); the result is the "
            "same",
        },
    )


def run(args: argparse.Namespace) -> int:
    if STANDARD in (*args.files, args.out):
        return _run_standard(args)
    if args.language is None:
        for path in find_all_files(args.files):
            with open_text(path, column=args.column) as text:
                if text.kind == PLAIN:
                    _require_language(args, path)
    from bilm.data.prefetch import n_processors
    from bilm.data.tokenized_text import record_beside, tokenize_files

    flags.outputs(args, out=[args.out, record_beside(args.out)])
    with ProgressDisplay() as display:
        result = tokenize_files(
            args.files,
            args.out,
            args.language,
            method=args.method,
            lines=args.lines,
            column=args.column,
            jobs=args.jobs or n_processors(),
            progress=display.show,
            overwrite=args.force,
        )
    kinds = Counter(result.lines.values()).most_common()
    lines = ", ".join(f"{_MEANING[kind]} ({count(n, 'file')})" for kind, n in kinds)
    print(f"sentences    {result.n_sentences:,}")
    print(f"tokens       {result.n_tokens:,}")
    print(f"tokenizer    {result.tokenizer}")
    print(f"input lines  {lines}")
    if result.n_invisible:
        print(f"removed      {count(result.n_invisible, 'invisible character')}")
    print(f"next:\n  bilm shard {shlex.quote(args.out)} --out_dir shards --heldout 0.01")
    return 0


def _require_language(args: argparse.Namespace, name: str) -> NoReturn:
    flags.usage_error(
        args, f"--language CODE is required for {name}; xx is any language with spaces"
    )


def _run_standard(args: argparse.Namespace) -> int:
    from bilm.data.tokenized_text import tokens_of_text

    if [*args.files, args.out] != [STANDARD, STANDARD]:
        flags.usage_error(args, "- stands for both IN and OUT, or for neither")
    flags.require_effect(args, "files, because - is one stream", "jobs", "force")
    with open_text(sys.stdin.buffer, "standard input", column=args.column) as text:
        if args.language is None and text.kind == PLAIN:
            _require_language(args, "standard input")
        language = ANY_LANGUAGE if args.language is None else args.language
        settings, is_empty = (language, args.method, args.lines), True
        for sentence in tokens_of_text(text, *settings):
            line = " ".join(sentence)
            print(f"{plain_start(line) if is_empty else ''}{line}")
            is_empty = False
        if is_empty:
            raise InputError("standard input: no text.")
    return 0
