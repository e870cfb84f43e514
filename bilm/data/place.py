"""Where a run is in its corpus, as a value that can be written down and gone back to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from bilm.errors import InputError


class Settings(NamedTuple):
    """What a place presumes: with any of it changed, other batches would follow.

    Attributes:
        corpus: fingerprint of the shards' names and sizes.
        seed, shuffle_on_load, test: the data set's arguments.
        worker, n_workers: this worker's index, and how many share the corpus.
        batch_size, num_steps: rows of a batch, and inputs of a row.
    """

    corpus: int
    seed: int
    shuffle_on_load: bool
    test: bool
    worker: int
    n_workers: int
    batch_size: int
    num_steps: int


class RowPlace(NamedTuple):
    """Where one row is within a sentence: `offset` inputs of it have been given."""

    load: int
    sentence: int
    offset: int


class Place(NamedTuple):
    """Where the corpus goes on after a batch.

    Attributes:
        settings: what the place presumes.
        load: number of the shard being read, counted over all passes.
        sentence: number, in that load's order, of the sentence that is drawn next.
        rows: for each row of the batch the sentence that it goes on with, which may be of an
            earlier load; None if it takes a new one.
    """

    settings: Settings
    load: int
    sentence: int
    rows: tuple[RowPlace | None, ...]

    def to_dict(self) -> dict[str, Any]:
        """The place in lists and numbers, fit for JSON."""
        return {
            **self.settings._asdict(),
            "load": self.load,
            "sentence": self.sentence,
            "rows": [row and list(row) for row in self.rows],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Place:
        """A place from what `to_dict` gave.

        Raises:
            InputError: it is not such a dict.
        """
        try:
            settings = Settings(**{name: values[name] for name in Settings._fields})
            rows = tuple(row and RowPlace(*row) for row in values["rows"])
            return cls(settings, values["load"], values["sentence"], rows)
        except (KeyError, TypeError) as error:
            raise InputError(f"not a place in a corpus: {error!r}.") from error

    def with_batches(self, batch_size: int, num_steps: int) -> Place:
        """Where the corpus goes on in batches of another shape: with the sentence drawn next.

        What is left of the rows' unfinished sentences is passed over.
        """
        settings = self.settings._replace(batch_size=batch_size, num_steps=num_steps)
        return self._replace(settings=settings, rows=(None,) * batch_size)

    def with_worker(self, worker: int, n_workers: int) -> Place:
        """Where one of another number of workers goes on: at the begin of the shard being read.

        The shares of a shard are others for them, so that it is read anew.
        """
        settings = self.settings._replace(worker=worker, n_workers=n_workers)
        return Place(settings, self.load, 0, (None,) * settings.batch_size)

    def require(self, settings: Settings) -> None:
        """Refuse to go on from this place under other settings.

        Raises:
            InputError: names each setting that differs, with both values.
        """
        changes = [
            "the corpus has other files or sizes"
            if name == "corpus"
            else f"{name} was {old} and is now {new}"
            for name, old, new in zip(Settings._fields, self.settings, settings, strict=True)
            if old != new
        ]
        if changes:
            raise InputError(f"cannot go on from this place in the corpus: {'; '.join(changes)}.")
