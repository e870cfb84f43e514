"""A task's model trained and measured for one seed after the other, from the command line.

    def main(argv=None):
        program(make_task, __doc__, argv)

    def make_task(args):
        return Task("entities", parts, build, decode, score)

`Task` says what there is to learn: examples, a model, what its outputs mean, and the measure. All
else is the same in all tasks and stands here: batches of examples of like length, training by
`fit`, early stopping by the task's own measure on the development part, the best weights kept, and
the mean over the seeds.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bilm.core.errors import InputError
from bilm.progress import ProgressDisplay
from common.vectors import (
    LEARNED,
    ModelInputs,
    Sentence,
    TokenVectors,
    VectorSettings,
    round_up,
)

PARTS = ("train", "dev", "test")
# Of targets past the end of a text, which no tag or class has.
NO_TARGET = -1


class Example(NamedTuple):
    """What a model sees and says of one example.

    Attributes:
        texts: the tokens of each text, by its name.
        target: what the model is to say: a number, an array, or a list with a number for each
            token of the first text, which is padded with `NO_TARGET`.
        features: what else the model sees, by name: numbers, arrays of one shape, or lists with a
            number for each token, which are padded with 0.
        gold: what the score compares predictions with, in a form of the task's own.
    """

    texts: Mapping[str, Sentence]
    target: Any
    features: Mapping[str, Any] = {}
    gold: Any = None


class Built(NamedTuple):
    """A model before it is compiled: its outputs, and their loss."""

    outputs: Any
    loss: Any


Scores = dict[str, float]


class Task(NamedTuple):
    """A task.

    Attributes:
        name: for the results.
        parts: the examples of "train", "dev" and "test".
        build: makes the outputs and the loss of a model from its inputs.
        decode: predictions for a batch, from the model, its outputs as arrays, and the examples.
        score: the measures of predictions for examples; the first is the one that decides.
    """

    name: str
    parts: Mapping[str, Sequence[Example]]
    build: Callable[[ModelInputs], Built]
    decode: Callable[[keras.Model, Any, Sequence[Example]], list[Any]]
    score: Callable[[Sequence[Example], Sequence[Any]], Scores]


class Result(NamedTuple):
    """What one seed gave.

    Attributes:
        seed: of the drawing of examples, the weights and the dropout.
        dev, test: the measures, in per cent where they are shares.
        epochs: until the best weights on the development part.
        seconds: of training, for one epoch.
        mixes: the weights of ELMo's layers and gamma, at "input" and at "output".
    """

    seed: int
    dev: Scores
    test: Scores
    epochs: int
    seconds: float
    mixes: dict[str, Any]


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """The flags that all tasks have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, metavar="FOLDER", help="where the examples are")
    add = parser.add_argument_group("what stands for a token").add_argument
    model = "the language model; or options.json and weights.hdf5"
    add("--model", nargs="+", metavar="MODEL", help=model)
    layers = "of ELMo: mix, top, a number, or none (default: mix)"
    add("--layers", default="mix", type=_layers, help=layers)
    places = "where ELMo stands (default: input)"
    add("--at", default="input", choices=("input", "output", "both"), help=places)
    words = (
        f"static vectors (word2vec, GloVe, `bilm static`), or `{LEARNED}`: vectors trained "
        f"with the task (default: none beside ELMo, else {LEARNED})"
    )
    add("--words", metavar="FILE", help=words)
    penalty = "times the mix's W squared is added to the loss (default: 0.001)"
    number = _number(float, 0)
    add("--lambda", dest="l2_coef", type=number, default=0.001, metavar="LAMBDA", help=penalty)
    add("--layer_norm", action="store_true", help="normalise each layer before the mix")
    add("--dropout", type=_number(float, 0, 0.99), default=0.3, help="(default: 0.3)")
    add("--fine_tune", action="store_true", help="train the language model with the task")
    add("--cache", metavar="FOLDER", help="keep ELMo's layers there for the next run")
    add = parser.add_argument_group("training").add_argument
    count = _number(int, 1)
    size = "train on N examples, or on a part such as 0.1, drawn by the seed"
    add("--train_size", type=_size, metavar="N", help=size)
    add("--seeds", type=_number(int, 0), nargs="+", default=[1], help="a run for each (default: 1)")
    add("--epochs", type=count, default=12, help="at most (default: %(default)s)")
    patience = "epochs without a better score on dev before training ends (default: %(default)s)"
    add("--patience", type=count, default=3, help=patience)
    add("--batch_size", type=count, default=32, help="examples (default: %(default)s)")
    add("--size", type=count, default=100, help="units of an LSTM (default: %(default)s)")
    add("--learning_rate", type=number, default=0.001, help="Adam's (default: %(default)s)")
    add("--format", choices=("text", "json"), default="text", help="of the results")
    return parser


def _number(kind: type, least: float, most: float = 1e9) -> Callable[[str], Any]:
    """A type for a flag: a number from `least` to `most`."""

    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            rule = f"a number from {least}" + (f" to {most}" if most < 1 else "")
            raise argparse.ArgumentTypeError(f"{rule} is expected, not {text!r}")
        return value

    return parse


def _layers(text: str) -> str:
    if text not in ("mix", "top", "none") and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"mix, top, none or a number is expected, not {text!r}")
    return text


def _size(text: str) -> float | int:
    try:
        value = float(text) if "." in text else int(text)
    except ValueError:
        value = 0
    if value <= 0 or (isinstance(value, float) and value > 1):
        raise argparse.ArgumentTypeError(
            f"a number from 1, or a part such as 0.1 is expected, not {text!r}"
        )
    return value


def run(task: Task, args: argparse.Namespace) -> list[Result]:
    """Train and measure a model for each seed.

    Raises:
        FileNotFoundError, InputError: a file or a flag is not what it should be.
    """
    settings = VectorSettings(
        model=args.model if args.model is None or len(args.model) > 1 else args.model[0],
        **{name: getattr(args, name) for name in VectorSettings._fields if name != "model"},
    )
    for part in PARTS:
        if not task.parts[part]:
            raise InputError(f"{args.data}: there is no example in {part}.")
    sentences = {part: list(_sentences(task.parts[part])) for part in PARTS}
    together = [sentence for part in PARTS for sentence in sentences[part]]
    with tempfile.TemporaryDirectory() as scratch:
        with ProgressDisplay() as display:
            vectors = TokenVectors(
                settings,
                sentences["train"],
                together,
                args.cache or scratch,
                lambda done, _: display.update("reading with ELMo", done, unit="sentences"),
            )
        return [run_seed(task, vectors, args, seed) for seed in args.seeds]


def run_seed(task: Task, vectors: TokenVectors, args: argparse.Namespace, seed: int) -> Result:
    """Train a model from the beginning, and measure it where the development part liked it best."""
    keras.utils.set_random_seed(seed)
    training = draw(task.parts["train"], args.train_size, seed)
    inputs = ModelInputs(vectors)
    outputs, loss = task.build(inputs)
    model = keras.Model(inputs.inputs, outputs)
    optimizer = keras.optimizers.Adam(args.learning_rate, clipnorm=5.0)
    model.compile(optimizer, loss, jit_compile=False)
    score = Scorer(task, vectors, args.batch_size)
    watch = _Watch(lambda: score(model, task.parts["dev"]), f"seed {seed}")
    stop = keras.callbacks.EarlyStopping(
        "dev", mode="max", patience=args.patience, restore_best_weights=True
    )
    batches = training_batches(training, inputs, args.batch_size, seed)
    model.fit(batches, epochs=args.epochs, verbose=0, shuffle=False, callbacks=[watch, stop])
    best = max(range(len(watch.scores)), key=lambda epoch: first(watch.scores[epoch]))
    return Result(
        seed,
        watch.scores[best],
        score(model, task.parts["test"]),
        best + 1,
        statistics.median(watch.seconds),
        inputs.mix_weights(),
    )


def draw(examples: Sequence[Example], size: float | int | None, seed: int) -> list[Example]:
    """Some of the examples, in an order of their own."""
    drawn = list(examples)
    random.Random(seed).shuffle(drawn)
    if size is None:
        return drawn
    return drawn[: max(1, round(size * len(drawn))) if isinstance(size, float) else size]


def _sentences(examples: Iterable[Example]) -> Iterator[Sentence]:
    return (sentence for example in examples for sentence in example.texts.values())


def first(scores: Scores) -> float:
    """The measure that decides."""
    return next(iter(scores.values()))


def encode(batch: Sequence[Example], vectors: TokenVectors) -> tuple[dict[str, Any], Any]:
    """Arrays of a batch: those of the model's inputs, and its targets."""
    inputs: dict[str, Any] = {}
    for name in batch[0].texts:
        inputs |= vectors.arrays(name, [example.texts[name] for example in batch])
    for name in batch[0].features:
        inputs[name] = stack([example.features[name] for example in batch], 0)
    return inputs, stack([example.target for example in batch], NO_TARGET)


def stack(values: Sequence[Any], padding: int) -> np.ndarray:
    """Numbers or arrays of one shape in an array; lists are padded, as their texts are."""
    if not isinstance(values[0], list):
        return np.array(values)
    result = np.full((len(values), round_up(max(map(len, values)))), padding, np.int32)
    for row, value in zip(result, values, strict=True):
        row[: len(value)] = value
    return result


def length(example: Example) -> int:
    """By which examples are put together: all tokens."""
    return sum(map(len, example.texts.values()))


def training_batches(
    examples: Sequence[Example], inputs: ModelInputs, batch_size: int, seed: int
) -> tf.data.Dataset:
    """Batches of examples of like length: others in each epoch, in another order.

    All have `batch_size` examples: the last of them is filled up with some that others have too.
    """
    rng = np.random.default_rng(seed)
    n_batches = -(-len(examples) // batch_size)
    lengths = np.array([length(example) for example in examples])

    def generate() -> Iterator[Any]:
        order = np.argsort(lengths * rng.uniform(0.9, 1.1, len(lengths)), kind="stable")
        order = np.resize(order, n_batches * batch_size).reshape(n_batches, batch_size)
        for numbers in rng.permutation(order):
            yield encode([examples[number] for number in numbers], inputs.vectors)

    target = encode(examples[:1], inputs.vectors)[1]
    signature = (
        {name: tf.TensorSpec(x.shape, x.dtype) for name, x in inputs.inputs.items()},
        tf.TensorSpec([None] * target.ndim, target.dtype),
    )
    dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
    counted = dataset.apply(tf.data.experimental.assert_cardinality(n_batches)).prefetch(2)
    options = tf.data.Options()
    # There is nothing to tune, and the end of an epoch would wait for the tuner to wake: up to as
    # long as the epoch took.
    options.autotune.enabled = False
    return counted.with_options(options)


class Scorer:
    """Measures a model on examples.

    Args:
        task: how.
        vectors: of its texts.
        batch_size: examples that are computed together.
    """

    def __init__(self, task: Task, vectors: TokenVectors, batch_size: int) -> None:
        self.task, self.vectors, self.batch_size = task, vectors, batch_size

    def __call__(self, model: keras.Model, examples: Sequence[Example]) -> Scores:
        """The measures of the task."""
        return self.task.score(examples, self.predictions(model, examples))

    def predictions(self, model: keras.Model, examples: Sequence[Example]) -> list[Any]:
        """What the model says of each example, in their order."""
        order = sorted(range(len(examples)), key=lambda number: length(examples[number]))
        found: dict[int, Any] = {}
        for begin in range(0, len(order), self.batch_size):
            numbers = order[begin : begin + self.batch_size]
            batch = [examples[number] for number in numbers]
            outputs = model.predict_on_batch(encode(batch, self.vectors)[0])
            decoded = self.task.decode(model, outputs, batch)
            found.update(zip(numbers, decoded, strict=True))
        return [found[number] for number in range(len(examples))]


class _Watch(keras.callbacks.Callback):
    """Measures the model after each epoch; the decisive score is "dev" for what comes after."""

    def __init__(self, score: Callable[[], Scores], name: str) -> None:
        super().__init__()
        self.score, self.name = score, name
        self.scores: list[Scores] = []
        self.seconds: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Start the clock."""
        self._begin = time.monotonic()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any]) -> None:
        """Measure, and say so."""
        self.seconds.append(time.monotonic() - self._begin)
        self.scores.append(self.score())
        logs["dev"] = first(self.scores[-1])
        print(
            f"{self.name} epoch {epoch + 1}: loss {logs['loss']:.4f}, dev "
            f"{_shown(self.scores[-1])} ({self.seconds[-1]:.1f} s)",
            file=sys.stderr,
            flush=True,
        )


def _shown(scores: Scores) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in scores.items())


def summary(results: Sequence[Result], part: str) -> dict[str, tuple[float, float]]:
    """The mean and the standard deviation (of a sample; 0 of one seed) of each measure."""
    by_name = {
        name: [getattr(result, part)[name] for result in results]
        for name in getattr(results[0], part)
    }
    return {
        name: (statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0)
        for name, values in by_name.items()
    }


def report(name: str, results: Sequence[Result], args: argparse.Namespace) -> None:
    """Print what was found: a table, or one line of JSON with all there is to know."""
    parts = {part: summary(results, part) for part in ("dev", "test")}
    if args.format == "json":
        line = {
            "task": name,
            "settings": {key: value for key, value in vars(args).items() if key != "format"},
            **parts,
            "runs": [result._asdict() for result in results],
        }
        print(json.dumps(line, ensure_ascii=False))
        return
    print(f"{name}: mean and standard deviation of {len(results)} seeds")
    for measure in parts["dev"]:
        shown = ("{} {:6.2f} ± {:.2f}".format(part, *parts[part][measure]) for part in parts)
        print(f"  {measure:<12}{'   '.join(shown)}")
    for result in results:
        for place, mix in result.mixes.items():
            weights = "  ".join(f"{k}: {weight:.2f}" for k, weight in mix["weights"].items())
            print(f"  seed {result.seed}, {place}: gamma {mix['gamma']:.2f}, layers {weights}")


def program(
    make_task: Callable[[argparse.Namespace], Task],
    description: str | None,
    argv: Sequence[str] | None,
    **defaults: Any,
) -> None:
    """The whole of a program: flags, examples, a run for each seed, results.

    What a user can mend ends it with a message and the exit code 1.
    """
    parser = make_parser(description)
    parser.set_defaults(**defaults)
    args = parser.parse_args(argv)
    try:
        task = make_task(args)
        report(task.name, run(task, args), args)
    except (InputError, FileNotFoundError) as error:
        parser.exit(1, f"{parser.prog}: error: {error}\n")
