"""Sentences as the names of their vectors in a file, and which of them cannot be names."""

from __future__ import annotations

from bilm.errors import InputError

_LONGEST = 65000  # bytes; HDF5 and ZIP files have names of up to 64 KB


class SentenceKeys:
    """Tells which sentences of a text are new, and refuses those that a file cannot name.

    In HDF5 a "/" in a name opens a group, so that "a / b" is found under its own name, as readers
    of `allennlp elmo`'s files expect, but cannot stand beside a sentence "a ". Empty steps and
    steps of one full stop are passed over, so that "." alone names the file itself.

    Args:
        paths: True for HDF5, where "/" opens a group.
    """

    def __init__(self, paths: bool) -> None:
        self._paths = paths
        self._taken: dict[str, str] = {}  # names as HDF5 reads them, and the sentences
        self._groups: set[str] = set()

    def is_new(self, sentence: str, place: str) -> bool:
        """Whether a sentence has not been here before.

        Args:
            place: where it stands, for messages.

        Raises:
            InputError: the sentence cannot be a name, or not beside another one's.
        """
        if self._taken.get(sentence) == sentence:
            return False
        if "\0" in sentence or len(sentence.encode()) > _LONGEST:
            raise self._refusal(sentence, place, f"names have at most {_LONGEST} bytes, none of 0")
        if not self._paths:
            self._taken[sentence] = sentence
            return True
        steps = [step for step in sentence.split("/") if step not in ("", ".")]
        name = "/".join(steps)
        if not steps:
            raise self._refusal(sentence, place, "in HDF5 it names the file itself")
        groups = {"/".join(steps[:n]) for n in range(1, len(steps))}
        other = self._taken.get(name)
        if other == sentence:
            return False
        if other is not None or name in self._groups:
            raise self._refusal(sentence, place, "in HDF5 another sentence has this name or group")
        if not groups.isdisjoint(self._taken):
            raise self._refusal(sentence, place, "in HDF5 another sentence has the name before a /")
        self._taken[name] = sentence
        self._groups |= groups
        return True

    def _refusal(self, sentence: str, place: str, reason: str) -> InputError:
        shown = sentence if len(sentence) < 80 else f"{sentence[:77]}..."
        return InputError(
            f"{place}: {shown!r} cannot be a key: {reason}. Keys that are line numbers (the "
            "default) are always possible."
        )
