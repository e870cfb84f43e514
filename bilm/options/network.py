"""The sizes and switches of the network: what both kinds of options file say of it."""

from __future__ import annotations

from dataclasses import dataclass

from bilm.options.rules import COUNT, PAIRS, POSITIVE, is_count, is_positive, require

# Byte values 0..255 and five marks: begin and end of sentence, begin and end of word, padding.
N_CHARACTERS = 261


@dataclass(frozen=True)
class LSTMOptions:
    """The `lstm` part: the recurrent layers of each direction.

    Attributes:
        dim: units of the cell.
        projection_dim: size of a layer's input and output; equal to `dim`, there is no projection.
        n_layers: layers of each direction.
        cell_clip: bound of the cell state's absolute value; None is no bound.
        proj_clip: bound of the output's absolute value; None is no bound.
        use_skip_connections: from the second layer on, a layer's output is added to its input.
    """

    dim: int
    projection_dim: int
    n_layers: int = 1
    cell_clip: float | None = None
    proj_clip: float | None = None
    use_skip_connections: bool = False

    def __post_init__(self) -> None:
        for name in ("dim", "projection_dim", "n_layers"):
            require(is_count(getattr(self, name)), f"lstm.{name}", COUNT, getattr(self, name))
        for name in ("cell_clip", "proj_clip"):
            value = getattr(self, name)
            require(value is None or is_positive(value), f"lstm.{name}", POSITIVE, value)
        skip = self.use_skip_connections
        require(isinstance(skip, bool), "lstm.use_skip_connections", "true or false", skip)

    @property
    def has_projection(self) -> bool:
        """Whether the cell's output is projected (it is not when the sizes are equal)."""
        return self.projection_dim != self.dim


@dataclass(frozen=True)
class DictionaryOptions:
    """The `dictionary` of a `char_cnn`: characters and words by their rows, in place of bytes.

    Models that `bilm convert` made of those of ELMoForManyLangs have one.

    Attributes:
        n_characters: rows of the dictionary of characters, of which the last one is padding.
        n_words: rows of the dictionary of words; 0 if there is none.
        word_dim: size of a word's own vector, which is projected beside its characters'.
    """

    n_characters: int
    n_words: int = 0
    word_dim: int = 0

    def __post_init__(self) -> None:
        for name, low in (("n_characters", 1), ("n_words", 0), ("word_dim", 0)):
            value = getattr(self, name)
            rule = f"a whole number from {low}"
            require(is_count(value, low), f"char_cnn.dictionary.{name}", rule, value)


@dataclass(frozen=True)
class CharCNNOptions:
    """The `char_cnn` part: a word's vector from its characters.

    Attributes:
        filters: pairs (width in characters, number of filters).
        activation: "relu" or "tanh", after the maximum over positions.
        embedding_dim: size of a character's vector.
        n_highway: highway layers.
        max_characters_per_token: characters of a word, its begin and end marks among them.
        dictionary: what stands in place of bytes; None for the published models, which have them.
    """

    filters: tuple[tuple[int, int], ...]
    activation: str
    embedding_dim: int
    n_highway: int = 0
    max_characters_per_token: int = 50
    dictionary: DictionaryOptions | None = None

    def __post_init__(self) -> None:
        require(
            self.activation in ("relu", "tanh"),
            "char_cnn.activation",
            "relu or tanh",
            self.activation,
        )
        for name, low in (("embedding_dim", 1), ("n_highway", 0), ("max_characters_per_token", 3)):
            key = "embedding.dim" if name == "embedding_dim" else name
            value = getattr(self, name)
            require(is_count(value, low), f"char_cnn.{key}", f"a whole number from {low}", value)
        longest = self.max_characters_per_token
        rule = f"{PAIRS} with widths of at most max_characters_per_token = {longest}"
        good = bool(self.filters) and all(
            len(pair) == 2 and all(is_count(n) for n in pair) and pair[0] <= longest
            for pair in self.filters
        )
        require(good, "char_cnn.filters", rule, self.filters)

    @property
    def n_characters(self) -> int:
        """Rows of the table of characters; the last one is padding."""
        return N_CHARACTERS if self.dictionary is None else self.dictionary.n_characters

    @property
    def n_filters(self) -> int:
        """Size of the concatenated convolutions, which the highway layers keep."""
        return sum(number for _, number in self.filters)
