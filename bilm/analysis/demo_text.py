"""The demo's text (docstrings, or the user's own), and the choice of words to show."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import random
import re
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bilm.analysis.clusters import cluster_occurrences
from bilm.analysis.occurrences import Occurrences, Sentence, ordinary_words, sample_uses
from bilm.core.errors import InputError
from bilm.data.tokenized_text import split_text
from bilm.data.tokenizer import Tokenizer, is_unspaced
from bilm.files.reading import PathLike, read_text
from bilm.files.writing import atomic_write
from bilm.progress import ShowStage, quiet

if TYPE_CHECKING:
    import numpy as np

    from bilm.use.elmo import ELMo

Tokens = list[str]
# Sentences that belong together; held-out text is made of complete documents.
Document = list[Tokens]

# Sources of docstrings, in addition to Python's standard library.
PACKAGES = ("numpy", "keras", "tensorflow")
_SKIPPED_FOLDERS = frozenset(
    ("site-packages", "dist-packages", "__pycache__", "test", "tests", "testing", "idle_test")
)
_CANDIDATES = 150  # words to cluster
_OCCURRENCES = 150  # of each word
_LEAST = 40  # occurrences of a displayed word
_LEAST_PROPORTION = 0.2  # of the smaller cluster
_MOST_FIXED = 0.5  # proportion of a cluster in one fixed phrase, such as "for example"
_SENTENCES_PER_DOCUMENT = 100  # in the user's text
_TOKENIZER_LINES = 1000  # lines of a text that determine its tokenizer

_DOCSTRING = re.compile(r'"""(.+?)"""', re.DOTALL)
# Doctests, fenced code, headings with a rule, fields such as "axis : int".
_NOT_PROSE = re.compile(
    r"^ *>>>.*(?:\n.+)*|^ *```(?s:.*?)```|^.*\n *[-=~]{3,} *$|^ *[\w*, ]+ : .*$", re.MULTILINE
)
# The start of an item: bullets, ":param x:" and "x (int):".
_ITEM = re.compile(
    r"^ *(?:[-*] |\d+[.)] |:\w+[^:\n]*:|[*`\w]+(?: ?\([^)\n]*\))?:(?= |$))", re.MULTILINE
)
_PARAGRAPH_END = re.compile(r"\n\s*\n")
_PROSE = re.compile(r"[A-Z][\w ,;:'’\"()./-]*[.!?]")
_SMALL_WORDS = frozenset(
    "a an the is are was be to of in for on by with from as at it its this that if not can "
    "when which".split()
)


@functools.cache
def _english() -> Tokenizer:
    return Tokenizer("en")


def gather_docstrings(packages: Sequence[str] = PACKAGES) -> list[Document]:
    """The prose of the docstrings of Python and of installed `packages`.

    Source files are read, not imported. Each module is a document, in a fixed order, and each
    sentence occurs once.
    """
    specs = [importlib.util.find_spec(name) for name in packages]
    folders = [Path(sysconfig.get_paths()["stdlib"])]
    folders += [Path(spec.origin).parent for spec in specs if spec is not None and spec.origin]
    documents, earlier = [], set()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            above = path.relative_to(folder).parts[:-1]
            if not _SKIPPED_FOLDERS.isdisjoint(above) or not path.is_file():
                continue
            source = path.read_text(encoding="utf-8", errors="replace")
            fresh = [s for s in dict.fromkeys(docstring_sentences(source)) if s not in earlier]
            earlier.update(fresh)
            if fresh:
                documents.append([*map(_english().tokens, fresh)])
    return documents


def docstring_sentences(source: str) -> Iterator[str]:
    """The sentences that look like prose in the docstrings of a Python file: `_PROSE` of at least
    five words, among them a function word such as "the"."""
    for docstring in _DOCSTRING.findall(source):
        prose = _ITEM.sub("\n\n", _NOT_PROSE.sub("\n\n", docstring)).replace("`", "")
        for paragraph in _PARAGRAPH_END.split(prose):
            for sentence in _english().sentences(" ".join(paragraph.split())):
                words = sentence.split()
                has_small_word = not _SMALL_WORDS.isdisjoint(words)
                if len(words) >= 5 and has_small_word and _PROSE.fullmatch(sentence):
                    yield sentence


def read_texts(paths: Sequence[PathLike], tokenized: bool, max_tokens: int) -> list[Document]:
    """Documents of the user's text, up to `max_tokens` tokens.

    `tokenized` text has one sentence per line; otherwise the script determines the tokenizer.
    """
    sentences: list[Tokens] = []
    n_tokens = 0
    for path in paths:
        before = n_tokens
        for sentence in _sentences(read_text(path), tokenized):
            if n_tokens >= max_tokens:
                break
            sentences.append(sentence)
            n_tokens += len(sentence)
        if n_tokens == before < max_tokens:
            raise InputError(f"{path}: must have some text.")
    starts = range(0, len(sentences), _SENTENCES_PER_DOCUMENT)
    return [sentences[start : start + _SENTENCES_PER_DOCUMENT] for start in starts]


def _sentences(lines: Iterator[str], tokenized: bool) -> Iterable[Tokens]:
    if tokenized:
        return filter(None, map(str.split, lines))
    first = list(itertools.islice(lines, _TOKENIZER_LINES))
    letters = [letter for line in first for letter in line if letter.isalpha()]
    tokenizer = _english()
    if sum(map(is_unspaced, letters)) > len(letters) / 2:  # no spaces between words: Chinese
        has_jieba = importlib.util.find_spec("jieba") is not None
        tokenizer = Tokenizer("zh", "jieba" if has_jieba else "characters")
    return split_text(itertools.chain(first, lines), tokenizer)[1]


class SplitText(NamedTuple):
    """Training sentences in random order, and held-out sentences in the order of the text."""

    training: list[Tokens]
    heldout: list[Tokens]


def set_aside(
    documents: Sequence[Document], share: float, max_tokens: int, seed: int = 0
) -> SplitText:
    """Set complete documents aside as held-out text: about a proportion `share` of the tokens, but
    about `max_tokens` at most.

    `seed` determines the choice and the order of the training sentences.
    """
    if len(documents) < 2:
        raise InputError(
            f"the text must have at least {_SENTENCES_PER_DOCUMENT + 1} sentences, to set some of "
            "them aside."
        )
    generator = random.Random(seed)
    order = generator.sample(range(len(documents)), len(documents))
    sizes = [sum(map(len, document)) for document in documents]
    n_tokens = min(share * sum(sizes), max_tokens)
    indices: set[int] = set()
    for index in order[:-1]:
        if sum(sizes[k] for k in indices) < n_tokens:
            indices.add(index)
    heldout = [s for k in sorted(indices) for s in documents[k]]
    training = [s for k, document in enumerate(documents) if k not in indices for s in document]
    # Held-out sentences are scored one by one, so training needs no context between sentences.
    generator.shuffle(training)
    return SplitText(training, heldout)


def write_sentences(path: PathLike, sentences: Iterable[Tokens]) -> None:
    """Write one sentence per line, tokens separated by spaces."""
    with atomic_write(path) as temporary, open(temporary, "w", encoding="utf-8") as text:
        text.writelines(f"{' '.join(sentence)}\n" for sentence in sentences)


def clearest_words(
    elmo: ELMo,
    sentences: Sequence[Sentence],
    n: int = 3,
    progress: ShowStage = quiet,
) -> list[str]:
    """The lower-case words with the highest silhouettes for two clusters, the clearest first.

    Words with one neighbour in most of a cluster, as in "for example", come last. `progress` is
    called with a `Stage` of occurrences.
    """
    candidates = ordinary_words(sentences, _CANDIDATES)
    if not candidates:
        return []
    # With capitals, the position in the sentence would separate the clusters.
    sample = sample_uses(sentences, candidates, max_occurrences=_OCCURRENCES, match_case=True)
    occurrences = Occurrences.encoded(elmo, sample, progress=progress)
    ranks = []
    for word in sample.counts:
        uses = occurrences.select(occurrences.of(word, match_case=True))
        clusters = cluster_occurrences(uses, max_clusters=2)
        smaller = min(clusters.sizes) if len(clusters) == 2 else 0
        if len(uses) >= _LEAST and smaller >= _LEAST_PROPORTION * len(uses):
            is_fixed = any(_is_fixed(uses, clusters.members(k)) for k in range(2))
            ranks.append((is_fixed, -clusters.silhouettes[2], word))
    return [word for *_, word in sorted(ranks)[:n]]


def _is_fixed(occurrences: Occurrences, cluster: np.ndarray) -> bool:
    """Whether most occurrences of a cluster have the same word before or after them."""
    sides = [occurrences.sides(int(k), 1) for k in cluster]
    for words in zip(*sides, strict=True):
        if max(Counter(words).values()) > _MOST_FIXED * len(cluster):
            return True
    return False
