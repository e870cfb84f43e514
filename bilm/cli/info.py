"""Describe a model.

MODEL is a folder or ZIP file with weights and options, a name or an address, or a folder of a
training run; --options_file and --weight_file name a pair of files instead. The weights are loaded,
so the description has been checked against them.

  bilm info elmo
  bilm info training-folder --json
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from bilm.cli import flags
from bilm.cli.terminal import count, import_tensorflow, printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add_model_argument(parser)
    flags.add(parser, {"--json": "print a JSON object"})


def run(args: argparse.Namespace) -> int:
    source = flags.model_source(args)
    flags.require_inputs(args)
    import_tensorflow()
    from bilm.files.model_files import open_model
    from bilm.use.description import describe_model, describe_training

    with open_model(source) as files:
        facts = describe_training(files) if files.is_checkpoint else describe_model(files)
    if args.json:
        print(printable(json.dumps(facts, ensure_ascii=False, indent=1)))
    else:
        for name, text in human_text(facts):
            print(f"{name:<14}{text}")
    return 0


def human_text(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """The facts as text: pairs of a name and a description."""
    rows = [("model", facts["model"]), ("input", _input_text(facts["input"]))]
    if facts["input"]["kind"] == "characters":
        rows.append(("encoder", _encoder_text(facts["input"], facts["lstm"]["projection_dim"])))
    rows.append(("LSTMs", _lstm_text(facts["lstm"])))
    vectors, counts = facts["vectors"], facts["parameters"]
    rows.append(("vectors", f"{vectors['layers']} layers of {vectors['dim']}, layer 0 the tokens'"))
    rows.append(("parameters", _parameters_text(counts)))
    if facts.get("predicts"):
        rows.append(("predicts", f"{facts['predicts']:,} words; for bilm score, bilm substitutes"))
    if "weights" in facts:
        weights = facts["weights"]
        rows.append(("weights", f"{weights['file']}, {weights['bytes']:,} bytes"))
        if weights["other_datasets"]:
            rows.append(("", f"with {', '.join(weights['other_datasets'])}"))
    vocabulary = facts["vocabulary"]
    words = "none" if vocabulary is None else f"{vocabulary['file']}, {vocabulary['words']:,} words"
    rows.append(("vocabulary", words))
    if facts["tokenizer"] is not None:
        rows.append(("tokenizer", f"{facts['tokenizer']}, of the training text"))
    if "training" in facts:
        rows += _training_text(facts["training"])
        rows.append(("begin", _begin_text(facts["training"]["reset_rate"])))
    else:
        rows += _trained_text(facts["trained"])
        if facts["initial_states"] == "own":
            rows[-1] = ("begin", "sentences start from the mean states of training, in the file")
    return [(name, printable(text)) for name, text in rows]


def _input_text(source: dict[str, Any]) -> str:
    if source["kind"] == "words":
        return f"words, a table of {source['words'] or 0:,}"
    text = f"characters, up to {source['max_characters_per_token']} a token"
    tokens = source["dictionary"]
    if tokens:
        text += f"; a dictionary of {tokens['n_characters']:,} characters"
        text += f" and one of {tokens['n_words']:,} words" if tokens["word_dim"] else ""
    return text


def _encoder_text(source: dict[str, Any], size: int) -> str:
    filters = ", ".join(f"{number} of width {width}" for width, number in source["filters"])
    after = f"projected to {size}" if source["projection"] else "not projected"
    return (
        f"characters of {source['character_dim']}; filters {filters}; {source['activation']}; "
        f"{count(source['highway_layers'], 'highway layer')}; {after}"
    )


def _lstm_text(lstm: dict[str, Any]) -> str:
    directions = "both directions" if lstm["directions"] == 2 else "forward only"
    projected = lstm["dim"] != lstm["projection_dim"]
    parts = [
        f"{directions}, {count(lstm['layers'], 'layer')} of {lstm['dim']}",
        f"projected to {lstm['projection_dim']}" if projected else "not projected",
        "skip connections" if lstm["skip_connections"] else "no skip connections",
    ]
    for name, what in (("cell_clip", "cell"), ("proj_clip", "projection")):
        if lstm[name] is not None:
            parts.append(f"{what} clipped at {lstm[name]:g}")
    return "; ".join(parts)


def _parameters_text(counts: dict[str, int]) -> str:
    parts = f"token encoder {counts['token_encoder']:,}; LSTMs {counts['lstms']:,}"
    if "softmax" in counts:
        parts += f"; the softmax has {counts['softmax']:,} more"
    return f"{counts['total']:,} ({parts})"


def _trained_text(trained: dict[str, Any] | None) -> list[tuple[str, str]]:
    """How the model of a weights file was trained."""
    if trained is None:
        return [("training", "not known"), ("begin", _begin_text(None))]
    text = f"{count(trained.get('steps') or 0, 'step')}{_amount_text(trained)}"
    return [("training", text), ("begin", _begin_text(trained.get("reset_rate")))]


def _amount_text(trained: dict[str, Any]) -> str:
    """The tokens that a model was trained on, and the passes, as far as they are known."""
    text, n = "", trained.get("n_train_tokens")
    if trained.get("tokens"):
        text += f", {trained['tokens']:,} tokens"
    if trained.get("passes"):
        text += f", {trained['passes']:.2f} passes{f' of {n:,}' if n else ''}"
    return text


def _begin_text(reset_rate: float | None) -> str:
    """Whether training visited the initial states of sentences."""
    if reset_rate:
        return f"sentences start from zeros, which training visited (reset rate {reset_rate:g})"
    if reset_rate is None:
        return "sentences start from zeros; whether training visited them is unknown"
    return "sentences start from zeros, which training did not visit (reset rate 0)"


def _training_text(training: dict[str, Any]) -> list[tuple[str, str]]:
    amount = f"{count(training['step'], 'step')}{_amount_text(training)}"
    n_epochs, adam_rate = training["n_epochs"], training["adam_learning_rate"]
    length = count(n_epochs, "epoch")
    if training["n_steps"] is not None:
        length = count(training["n_steps"], "step")
    rates = f"learning rate {training['learning_rate']:g}"
    if adam_rate is not None:
        dense = "Muon and Adam" if training["optimizer"] == "muon" else "Adam"
        rates = f"learning rates {adam_rate:g} ({dense}), {training['learning_rate']:g} (Adagrad)"
    shape = f"{training['batch_size']} x {training['unroll_steps']}"
    rows = [
        ("checkpoint", f"{training['checkpoint']}: {amount}"),
        ("training", f"batches of {shape}; {length}; dropout {training['dropout']:g}; {rates}"),
    ]
    if training["train_perplexity"] is not None:
        kind = "sampled softmax" if training["sampled_softmax"] else "full softmax"
        rows.append(("perplexity", f"{training['train_perplexity']:,.1f}, last batch, {kind}"))
    return rows
