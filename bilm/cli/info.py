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
import os
from typing import Any

from bilm.cli import flags
from bilm.files.reading import holds_checkpoint
from bilm.progress import duration
from bilm.terminal import count, import_tensorflow, printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add_model_argument(parser)
    flags.add(parser, {"--json": "print a JSON object"})


def run(args: argparse.Namespace) -> int:
    source = flags.model_source(args)
    flags.require_inputs(args)
    if isinstance(source, str) and (holds_checkpoint(source) or os.path.isfile(f"{source}.index")):
        import_tensorflow()  # which reads checkpoints
    from bilm.analysis.description import describe
    from bilm.files.model_files import open_model

    with open_model(source) as files:
        facts = describe(files)
    if args.json:
        print(printable(json.dumps(facts, ensure_ascii=False, indent=1)))
    else:
        for name, text in human_text(facts):
            print(f"{name:<14}{text}")
    return 0


def human_text(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """The facts as text: pairs of a name and a description."""
    source, lstm, counts = facts["input"], facts["lstm"], facts["parameters"]
    vectors, vocabulary = facts["vectors"], facts["vocabulary"]
    rows = [("model", facts["model"])]
    if source["kind"] == "words":
        rows.append(("input", f"words, a table of {source['words'] or 0:,}"))
    else:
        rows += _character_rows(source, lstm["projection_dim"])
    rows.append(("LSTMs", _lstm_text(lstm)))
    layers = f"{vectors['layers']} layers of {vectors['dim']}"
    rows.append(("vectors", f"{layers}; layer 0 is the token encoder's"))
    more = f"; the softmax has {counts['softmax']:,} more" if "softmax" in counts else ""
    parts = f"token encoder {counts['token_encoder']:,}; LSTMs {counts['lstms']:,}{more}"
    rows.append(("parameters", f"{counts['total']:,} ({parts})"))
    if facts.get("predicts"):
        rows.append(("predicts", f"{facts['predicts']:,} words; for bilm score, bilm substitutes"))
    if weights := facts.get("weights"):
        rows.append(("weights", f"{weights['file']}, {weights['bytes']:,} bytes"))
        if weights["other_datasets"]:
            rows.append(("", f"with {', '.join(weights['other_datasets'])}"))
    words = f"{vocabulary['file']}, {vocabulary['words']:,} words" if vocabulary else "none"
    rows.append(("vocabulary", words))
    if facts["tokenizer"] is not None:
        rows.append(("tokenizer", f"{facts['tokenizer']}, of the training text"))
    if "training" in facts:
        rows += _training_rows(facts["training"])
    else:
        rows.append(("training", _amount(facts["trained"]) if facts["trained"] else "not known"))
    trained = facts.get("training") or facts["trained"] or {}
    rows.append(("begin", _begin_text(trained.get("reset_rate"), facts.get("initial_states"))))
    return [(name, printable(text)) for name, text in rows]


def _character_rows(source: dict[str, Any], size: int) -> list[tuple[str, str]]:
    text = f"characters, up to {source['max_characters_per_token']} per token"
    if tokens := source["dictionary"]:
        text += f"; a dictionary of {tokens['n_characters']:,} characters"
        text += f" and one of {tokens['n_words']:,} words" if tokens["word_dim"] else ""
    filters = ", ".join(f"{number} of width {width}" for width, number in source["filters"])
    encoder = (
        f"characters of {source['character_dim']}; filters {filters}; {source['activation']}; "
        f"{count(source['highway_layers'], 'highway layer')}; "
        f"{f'projected to {size}' if source['projection'] else 'not projected'}"
    )
    return [("input", text), ("encoder", encoder)]


def _lstm_text(lstm: dict[str, Any]) -> str:
    directions = "both directions" if lstm["directions"] == 2 else "forward only"
    projected = lstm["dim"] != lstm["projection_dim"]
    parts = [
        f"{directions}, {count(lstm['layers'], 'layer')} of {lstm['dim']}",
        f"projected to {lstm['projection_dim']}" if projected else "not projected",
        "skip connections" if lstm["skip_connections"] else "no skip connections",
    ]
    for name, vector in (("cell_clip", "cell"), ("proj_clip", "projection")):
        if lstm[name] is not None:
            parts.append(f"{vector} clipped at {lstm[name]:g}")
    return "; ".join(parts)


def _amount(trained: dict[str, Any]) -> str:
    """The training in tokens and passes, including the training of --init_from; or in steps."""
    n = trained.get("n_train_tokens")
    if not trained.get("tokens"):
        return count(trained.get("steps") or 0, "step")
    text = f"{trained['tokens']:,} tokens"
    if trained.get("passes"):
        text += f", {trained['passes']:.2f} passes{f' of {n:,}' if n else ''}"
    return text


def _begin_text(reset_rate: float | None, states: str | None) -> str:
    """The initial states of sentences, and whether training visited them."""
    if states == "own":
        return "sentences start from the mean states of training, in the file"
    visited = "; whether training visited them is unknown"
    if reset_rate is not None:
        verb = "visited" if reset_rate else "did not visit"
        visited = f", which training {verb} (reset rate {reset_rate:g})"
    return f"sentences start from zeros{visited}"


def _training_rows(training: dict[str, Any]) -> list[tuple[str, str]]:
    """The newest checkpoint of a run, its settings, and the perplexity of its last batch."""
    length = "no length yet"
    if training["n_steps"] is not None or training["n_epochs"] is not None:
        by_steps = training["n_steps"] is not None  # it overrides the number of epochs
        noun = "step" if by_steps else "epoch"
        length = count(training[f"n_{noun}s"], noun)
    elif training["time_limit"] is not None:
        length = f"for {duration(training['time_limit'])}"
    dropout = training["dropout"]
    dropout = "not chosen yet" if dropout is None else f"{dropout:g}"
    rates = f"learning rate {training['learning_rate']:g}"
    if (adam_rate := training["adam_learning_rate"]) is not None:
        dense = "Muon and Adam" if training["optimizer"] == "muon" else "Adam"
        rates = f"learning rates {adam_rate:g} ({dense}), {training['learning_rate']:g} (Adagrad)"
    shape = f"{training['batch_size']} x {training['unroll_steps']}"
    amount = _amount(training | {"steps": training["step"]})
    rows = [
        ("checkpoint", f"{training['checkpoint']}: {amount}"),
        ("training", f"batches of {shape}; {length}; dropout {dropout}; {rates}"),
    ]
    if training["train_perplexity"] is not None:
        kind = "sampled softmax" if training["sampled_softmax"] else "full softmax"
        rows.append(("perplexity", f"{training['train_perplexity']:,.1f}, last batch, {kind}"))
    return rows
