"""The finished vectors of an unfinished job."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import zlib
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from bilm.data.sentences import Sentence
from bilm.files.hdf5 import JournaledHDF5
from bilm.files.identity import FACTS
from bilm.vectors.vector_files import SENTENCE_INDEX, EmbeddedSentence, as_dtype

VECTORS, JOURNAL = "vectors.hdf5", "journal"
_SAVE_SECONDS, _SAVE_BYTES = 10.0, 32 * 2**20


class SavedVectors:
    """Appends sentences to an HDF5 file in a folder, one dataset each; a context manager.

    They are saved after some seconds or megabytes, and saved sentences survive a crash
    (`JournaledHDF5`). If the file becomes the result of the job, each dataset has the name of its
    sentence. Otherwise the result is written from this file, which holds

        vectors/NUMBER      the vectors of a sentence
        sentences/N         uint8: JSON of the sentences of one save, of which N were saved before

    Args:
        becomes_result: whether the file becomes the result.
        with_ids: add the key to each dataset as the attribute `original_id`, as bio_embeddings
            does.

    Attributes:
        n_sentences, checksum: number and `checksum` of the sentences so far.
    """

    def __init__(
        self, folder: str, dtype: str, *, becomes_result: bool, with_ids: bool = False
    ) -> None:
        self._path = os.path.join(folder, VECTORS)
        self._journaled = JournaledHDF5(self._path, os.path.join(folder, JOURNAL))
        self._file = self._journaled.file
        self._dtype, self._with_ids = np.dtype(dtype), with_ids
        self._becomes_result = becomes_result
        record = self._journaled.record or {"n_sentences": 0, "checksum": 0}
        self.n_sentences, self.checksum = record["n_sentences"], record["checksum"]
        self._unsaved: list[Sentence] = []
        self._since, self._unsaved_bytes = time.monotonic(), 0

    def new_array(self, shape: tuple[int, ...]) -> OnDisk:
        """An array on disk for a long sentence's vectors; that sentence must be added next."""
        self.save()
        return OnDisk(self._file.create_dataset(None, shape, self._dtype))

    def add(self, sentence: Sentence, vectors: Any) -> None:
        """Append a sentence; `vectors` is an array in memory, or the one from `new_array`."""
        name = sentence.name if self._becomes_result else f"vectors/{sentence.number}"
        if not isinstance(vectors, OnDisk):
            vectors = as_dtype(vectors, self._dtype)
        with self._journaled.changing():
            if isinstance(vectors, OnDisk):
                dataset = self._file[name] = vectors.dataset
            else:
                dataset = self._file.create_dataset(name, data=vectors)
            if self._with_ids:
                dataset.attrs["original_id"] = sentence.name
            self._unsaved.append(sentence)
            self.n_sentences += 1
            self.checksum = checksum(self.checksum, sentence)
            self._unsaved_bytes += dataset.nbytes
        is_late = time.monotonic() - self._since > _SAVE_SECONDS
        if self._unsaved_bytes >= _SAVE_BYTES or is_late:
            self.save()

    def save(self) -> None:
        """Save the sentences added so far."""
        if not self._unsaved:
            return
        with self._journaled.changing():
            if not self._becomes_result:
                content = np.frombuffer(json.dumps(self._unsaved).encode(), np.uint8)
                self._file[f"sentences/{self.n_sentences - len(self._unsaved):012}"] = content
            self._journaled.commit(self._record)
            self._unsaved, self._since, self._unsaved_bytes = [], time.monotonic(), 0

    @property
    def _record(self) -> dict[str, int]:
        return {"n_sentences": self.n_sentences, "checksum": self.checksum}

    def __iter__(self) -> Iterator[EmbeddedSentence]:
        """The saved sentences with their vectors, in order."""
        blocks = self._file["sentences"].values() if self.n_sentences else ()
        for block in blocks:
            for fields in json.loads(block[()].tobytes()):
                sentence = Sentence(*fields)
                yield EmbeddedSentence(sentence, self._file[f"vectors/{sentence.number}"])

    def complete(self, out: str, facts: str, index: dict[str, str] | None = None) -> None:
        """Add the facts of the job and `sentence_to_index`, close the file, and link or copy it to
        `out`."""
        if index is not None:
            if SENTENCE_INDEX in self._file:  # after a kill at the end of this function
                del self._file[SENTENCE_INDEX]
            content = json.dumps(index)
            self._file.create_dataset(SENTENCE_INDEX, (1,), h5py.string_dtype())[0] = content
        self._file.attrs[FACTS] = facts
        self._journaled.commit(self._record, close=True)
        try:
            os.link(self._path, out)
        except OSError:  # another file system, or no links
            shutil.copyfile(self._path, out)

    def __enter__(self) -> SavedVectors:
        return self

    def __exit__(self, *_: Any) -> None:
        with self._journaled, contextlib.suppress(OSError):
            if self._file and self._journaled.is_whole:  # open, and no sentence is half added
                self.save()


class OnDisk:
    """A dataset that is filled block by block."""

    def __init__(self, dataset: h5py.Dataset) -> None:
        self.dataset = dataset

    def __setitem__(self, index: Any, values: np.ndarray) -> None:
        self.dataset[index] = as_dtype(values, self.dataset.dtype)


def checksum(previous: int, sentence: Sentence) -> int:
    """The CRC-32 of sentences, from the `previous` one and one more sentence."""
    return zlib.crc32(json.dumps(sentence).encode(), previous)
