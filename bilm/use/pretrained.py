"""A model and its loading settings as one value."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bilm.core.errors import InputError, shown
from bilm.data.warm_up import WarmUpText
from bilm.files.model_files import ModelSource
from bilm.files.published import is_remote
from bilm.files.reading import PathLike

if TYPE_CHECKING:
    from bilm.use.elmo import ELMo


class Pretrained(NamedTuple):
    """A model and the settings that it is loaded with: the arguments of `ELMo.from_pretrained` and
    `Predictor.from_pretrained`, which accept a `Pretrained` instead of a source. It can be pickled.

    Attributes:
        source: a folder, a ZIP file, a name, an address, or a pair; see
            `bilm.files.model_files.open_model`.
        vocab_file: the vocabulary of a word-level model, of a token cache, or of a softmax.
        embedding_weight_file: a token cache.
        precision: "float32", or "bfloat16" for matrix products in bfloat16.
        warm_up: a text to read first; see `bilm.data.warm_up`.
        softmax_file: the softmax of a `Predictor`, if the weights lack it.
    """

    source: ModelSource
    vocab_file: PathLike | None = None
    embedding_weight_file: PathLike | None = None
    precision: str = "float32"
    warm_up: WarmUpText | None = None
    softmax_file: PathLike | None = None

    @classmethod
    def of(cls, source: ModelSource | Pretrained, **settings: Any) -> Pretrained:
        """`source` with settings; a `Pretrained` already includes them.

        Raises:
            InputError: `source` is a `Pretrained`, and settings are given as well.
        """
        if not isinstance(source, Pretrained):
            return cls(source, **settings)
        defaults = cls(source.source)
        for name, value in settings.items():
            if value != getattr(defaults, name):
                raise InputError(f"{name} must be set in the Pretrained, got {shown(value)}.")
        return source

    def absolute(self) -> Pretrained:
        """The same model with absolute paths, for processes with other working directories."""
        source: Any = self.source
        if isinstance(source, str | os.PathLike):
            source = _absolute(source)
        elif isinstance(source, Sequence):
            source = tuple(map(_absolute, source))
        return self._replace(
            source=source,
            vocab_file=_absolute(self.vocab_file),
            embedding_weight_file=_absolute(self.embedding_weight_file),
            warm_up=_absolute(self.warm_up),
            softmax_file=_absolute(self.softmax_file),
        )

    def load(self) -> ELMo:
        """Load it as an `ELMo`; raises what `ELMo.from_pretrained` does."""
        from bilm.use.elmo import ELMo

        return ELMo.from_pretrained(self)


def _absolute(value: Any) -> Any:
    if not isinstance(value, str | os.PathLike) or is_remote(value):
        return value
    return os.path.abspath(value)
