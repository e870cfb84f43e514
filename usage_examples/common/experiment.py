"""Train and measure a task's model for several seeds, from the command line.

    def main(argv=None):
        program(make_task, __doc__, argv)

    def make_task(args):
        return Task("entities", parts, build, decode, score)

A `Task` has examples, a model, the meaning of its outputs, and a measure. Everything else is the
same for all tasks: batches of examples of similar length, training by `fit`, early stopping by the
task's measure on the dev part, and the mean over the seeds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bilm.cli import flags
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
NO_TARGET = -1  # padding of targets
MODEL_HELP = "language model: a folder, ZIP file or name; or options.json and weights.hdf5"


class Example(NamedTuple):
    """The input and the target of a model for one example.

    Attributes:
        texts: the tokens of each text, by name.
        target: a number, an array, or a list with a number for each token of the first text, which
            is padded with `NO_TARGET`.
        features: other inputs, by name: numbers, arrays of one shape, or lists with a number for
            each token, which are padded with 0.
        gold: the correct answer, in the form that `Task.score` expects.
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
        parts: the examples of "train", "dev" and "test".
        build: returns the outputs and the loss of a model for its inputs.
        decode: returns predictions for a batch, from the model, its outputs and the examples.
        score: returns measures of predictions for examples; the first one selects the best epoch.
    """

    name: str
    parts: Mapping[str, Sequence[Example]]
    build: Callable[[ModelInputs], Built]
    decode: Callable[[keras.Model, Any, Sequence[Example]], list[Any]]
    score: Callable[[Sequence[Example], Sequence[Any]], Scores]


class Result(NamedTuple):
    """The result for one seed: the measures, with proportions in per cent."""

    seed: int
    dev: Scores
    test: Scores
    epochs: int  # to the best weights on the dev part
    seconds: float  # median duration of an epoch
    mixes: dict[str, Any]  # the weights of ELMo's layers and gamma, at "input" and at "output"


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """The flags of all tasks."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add(parser, {"--data FOLDER": "folder with the examples"}, required=True)
    group = parser.add_argument_group("token vectors")
    layers = {"--layers LAYERS": "layers of ELMo: mix, top, a number, or none (default: mix)"}
    flags.add(group, layers, default="mix", type=_layers)
    flags.add(
        group,
        {
            "--model MODEL ...": MODEL_HELP,
            "--at input|output|both": "where ELMo is added (default: input)",
            "--words FILE": "static vectors (word2vec, GloVe, `bilm static`), or "
            f"`{LEARNED}` for vectors trained with the task (default: none with ELMo, otherwise "
            f"{LEARNED})",
            "--layer_norm": "normalise each layer before the mix",
            "--fine_tune": "train the language model with the task",
            "--layer_rates X": "with --fine_tune: the learning rate of each layer of the language "
            "model is X times that of the layer above, below 1 to change low layers less "
            "(default: 1)",
            "--cache FOLDER": "keep ELMo's layers there for the next run",
        },
    )
    penalty = "factor of the sum of the mix's squared weights in the loss (default: 0.001)"
    number = flags.value(float, "must be a number >= 0", lambda x: 0 <= x < 1e9)
    flags.add(group, {"--lambda LAMBDA": penalty}, dest="l2_coef", type=number)
    proportion = flags.value(float, "must be a number from 0 to 0.99", lambda x: 0 <= x <= 0.99)
    flags.add(group, {"--dropout RATE": "dropout rate (default: 0.3)"}, type=proportion)
    group = parser.add_argument_group("training")
    size = "train on N random examples, or on a proportion such as 0.1"
    flags.add(group, {"--train_size N": size}, type=_size)
    flags.add(
        group,
        {
            "--seeds N>=0 ...": "random seeds, one run each (default: 1)",
            "--epochs N": "maximum number of epochs (default: %(default)s)",
            "--patience N": "epochs without a better dev score before training ends (default: 3)",
            "--batch_size N": "examples per batch (default: %(default)s)",
            "--size N": "units of an LSTM (default: %(default)s)",
            "--learning_rate X": "learning rate of Adam (default: %(default)s)",
            "--format text|json": "format of the results",
        },
    )
    parser.set_defaults(
        at="input", l2_coef=0.001, layer_rates=1.0, dropout=0.3, seeds=[1], epochs=12, patience=3,
        batch_size=32, size=100, learning_rate=0.001, format="text",
    )  # fmt: skip
    return parser


_layers = flags.value(
    str,
    "must be mix, top, none or a number",
    lambda text: text in ("mix", "top", "none") or text.isdecimal(),
)
_size = flags.value(
    lambda text: float(text) if "." in text else int(text),
    "must be an integer >= 1, or a proportion such as 0.1",
    lambda size: size > 0 and (isinstance(size, int) or size <= 1),
)


def run(task: Task, args: argparse.Namespace) -> list[Result]:
    """Train and measure a model for each seed."""
    settings = VectorSettings(**flags.keywords(args, *VectorSettings._fields))
    if args.model is not None and len(args.model) == 1:
        settings = settings._replace(model=args.model[0])
    for part in PARTS:
        if not task.parts[part]:
            raise InputError(f"{args.data}: {part} must have at least one example.")
    examples = itertools.chain(*(task.parts[part] for part in PARTS))
    with tempfile.TemporaryDirectory() as scratch:
        with ProgressDisplay() as display:
            vectors = TokenVectors(
                settings,
                texts_of(examples),
                args.cache or scratch,
                display.show,
            )
        return [run_seed(task, vectors, args, seed) for seed in args.seeds]


def run_seed(task: Task, vectors: TokenVectors, args: argparse.Namespace, seed: int) -> Result:
    """Train a model, and measure it with the weights that were best on the dev part."""
    keras.utils.set_random_seed(seed)
    training = draw(task.parts["train"], args.train_size, seed)
    vectors.learn(texts_of(training))
    inputs = ModelInputs(vectors)
    outputs, loss = task.build(inputs)
    model = keras.Model(inputs.inputs, outputs)
    optimizer = LayerwiseAdam(args.layer_rates, args.learning_rate, clipnorm=5.0)
    model.compile(optimizer, loss, jit_compile=False)

    def score(part: str) -> Scores:
        examples = task.parts[part]
        return task.score(examples, predict(task, vectors, model, examples, args.batch_size))

    watch = _Watch(lambda: score("dev"), f"seed {seed}")
    stop = keras.callbacks.EarlyStopping(
        "dev", mode="max", patience=args.patience, restore_best_weights=True
    )
    batches = training_batches(training, inputs, args.batch_size, seed)
    model.fit(batches, epochs=args.epochs, verbose=0, shuffle=False, callbacks=[watch, stop])
    best = max(range(len(watch.scores)), key=lambda epoch: first(watch.scores[epoch]))
    return Result(
        seed,
        watch.scores[best],
        score("test"),
        best + 1,
        statistics.median(watch.seconds),
        inputs.mix_weights(),
    )


def draw(examples: Sequence[Example], size: float | int | None, seed: int) -> list[Example]:
    """Up to `size` random examples, or this proportion of them, in random order."""
    drawn = list(examples)
    random.Random(seed).shuffle(drawn)
    if size is None:
        return drawn
    return drawn[: max(1, round(size * len(drawn))) if isinstance(size, float) else size]


def texts_of(examples: Iterable[Example]) -> list[Sentence]:
    """All texts of examples."""
    return [text for example in examples for text in example.texts.values()]


def first(scores: Scores) -> float:
    """The first measure, which selects the best epoch."""
    return next(iter(scores.values()))


def encode(batch: Sequence[Example], vectors: TokenVectors) -> tuple[dict[str, Any], Any]:
    """The arrays of a batch: the model's inputs, and the targets."""
    inputs: dict[str, Any] = {}
    for name in batch[0].texts:
        inputs |= vectors.arrays(name, [example.texts[name] for example in batch])
    for name in batch[0].features:
        inputs[name] = stack([example.features[name] for example in batch], 0)
    return inputs, stack([example.target for example in batch], NO_TARGET)


def stack(values: Sequence[Any], padding: int) -> np.ndarray:
    """Numbers or arrays of one shape as one array; lists are padded like their texts."""
    if not isinstance(values[0], list):
        return np.array(values)
    result = np.full((len(values), round_up(max(map(len, values)))), padding, np.int32)
    for row, own in zip(result, values, strict=True):
        row[: len(own)] = own
    return result


def length(example: Example) -> int:
    """Number of tokens of an example."""
    return sum(map(len, example.texts.values()))


def training_batches(
    examples: Sequence[Example], inputs: ModelInputs, batch_size: int, seed: int
) -> tf.data.Dataset:
    """Batches of examples of similar length, different in each epoch and in random order.

    All have `batch_size` examples: the last one is filled up with repeated examples.
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
    # The autotuner is of no use here, and can double the duration of an epoch.
    options.autotune.enabled = False
    return counted.with_options(options)


def predict(
    task: Task,
    vectors: TokenVectors,
    model: keras.Model,
    examples: Sequence[Example],
    batch_size: int,
) -> list[Any]:
    """The prediction for each example."""
    order = sorted(range(len(examples)), key=lambda number: length(examples[number]))
    found: dict[int, Any] = {}
    for begin in range(0, len(order), batch_size):
        numbers = order[begin : begin + batch_size]
        batch = [examples[number] for number in numbers]
        outputs = model.predict_on_batch(encode(batch, vectors)[0])
        found.update(zip(numbers, task.decode(model, outputs, batch), strict=True))
    return [found[number] for number in range(len(examples))]


class LayerwiseAdam(keras.optimizers.Adam):
    """Adam with a learning rate for each layer of the language model (Howard and Ruder 2018,
    section 3.2: discriminative fine-tuning).

    Args:
        factor: the rate of a layer divided by the rate of the layer above; the task's own layers
            are above the top layer.
        learning_rate: the rate of the task's own layers.
        **keywords: arguments of `keras.optimizers.Adam`.
    """

    def __init__(self, factor: float, learning_rate: float, **keywords: Any) -> None:
        super().__init__(learning_rate, **keywords)
        self.factor = factor
        self._rates: list[float] = []  # for each variable

    def build(self, variables: Sequence[Any]) -> None:
        """Find each variable's layer by its path; the token encoder is layer 0."""
        super().build(variables)
        layers: list[int | None] = []
        for variable in variables:
            lstm = re.search(r"(?:^|/)(?:forward|backward)/layer_(\d+)_", variable.path)
            encoder = re.search("(?:^|/)encoder/", variable.path)
            layers.append(int(lstm[1]) + 1 if lstm else 0 if encoder else None)
        above = 1 + max((layer for layer in layers if layer is not None), default=0)
        self._rates = [1.0 if k is None else self.factor ** (above - k) for k in layers]

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update a variable at the rate of its layer."""
        rate = self._rates[self._get_variable_index(variable)]
        super().update_step(gradient, variable, learning_rate * rate)


class _Watch(keras.callbacks.Callback):
    """Measures the model after each epoch, and logs the first measure as "dev"."""

    def __init__(self, score: Callable[[], Scores], name: str) -> None:
        super().__init__()
        self.score, self.name = score, name
        self.scores: list[Scores] = []
        self.seconds: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Start the clock."""
        self._begin = time.monotonic()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any]) -> None:
        """Measure and print."""
        self.seconds.append(time.monotonic() - self._begin)
        self.scores.append(self.score())
        logs["dev"] = first(self.scores[-1])
        shown = ", ".join(f"{name} {value:.2f}" for name, value in self.scores[-1].items())
        print(
            f"{self.name} epoch {epoch + 1}: loss {logs['loss']:.4f}, dev {shown} "
            f"({self.seconds[-1]:.1f} s)",
            file=sys.stderr,
            flush=True,
        )


def summary(results: Sequence[Result], part: str) -> dict[str, tuple[float, float]]:
    """The mean and the sample standard deviation (0 for one seed) of each measure."""
    found = {}
    for name in getattr(results[0], part):
        values = [getattr(result, part)[name] for result in results]
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        found[name] = statistics.mean(values), deviation
    return found


def report(name: str, results: Sequence[Result], args: argparse.Namespace) -> None:
    """Print the results: a table, or one line of JSON with all details."""
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
    """A complete program: flags, examples, a run for each seed, results.

    Errors that the user can fix end it with a message and exit code 1.
    """
    parser = make_parser(description)
    parser.set_defaults(**defaults)
    args = parser.parse_args(argv)
    try:
        task = make_task(args)
        report(task.name, run(task, args), args)
    except (InputError, FileNotFoundError) as error:
        parser.exit(1, f"{parser.prog}: error: {error}\n")
