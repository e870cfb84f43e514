"""Folders for TensorBoard's Embedding Projector."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bilm import InputError
from bilm.analysis import write_projector
from tests.hand_made import two_senses


def test_the_files_of_a_folder(tmp_path):
    occurrences = two_senses()
    occurrences = replace(occurrences, clusters=["shore", "money"] * 8)
    write_projector(tmp_path / "vectors", occurrences)
    folder = tmp_path / "vectors"
    assert sorted(path.name for path in folder.iterdir()) == [
        "layer-0.tsv", "layer-1.tsv", "layer-2.tsv", "metadata.tsv", "projector_config.pbtxt",
    ]  # fmt: skip
    for layer in range(3):
        rows = np.loadtxt(folder / f"layer-{layer}.tsv", delimiter="\t")
        np.testing.assert_allclose(rows, occurrences.vectors[:, layer], rtol=1e-5)
    lines = (folder / "metadata.tsv").read_text(encoding="utf-8").splitlines()
    assert lines[:2] == [
        "word\tlabel\tcluster\tline",
        "bank\triver\tshore\tbirch muddy [bank] birch .",
    ]
    assert len(lines) == 17


def test_tabs_and_line_breaks_within_tokens_do_not_break_lines(tmp_path):
    occurrences = two_senses(labels=False)
    occurrences.sentences[0] = ("a\tb", "c\nd", "bank", "苹果")
    write_projector(tmp_path / "vectors", occurrences, layers=[1])
    lines = (tmp_path / "vectors" / "metadata.tsv").read_text(encoding="utf-8").splitlines()
    assert lines[:2] == ["word\tline", "bank\ta b c d [bank] 苹果"]


def test_tensorboard_reads_it(tmp_path):
    """Use the plugin's own message, reader and path check."""
    plugin = pytest.importorskip("tensorboard.plugins.projector.projector_plugin")
    text_format = pytest.importorskip("google.protobuf.text_format")
    occurrences = two_senses()
    folder = tmp_path / "vectors"
    write_projector(folder, occurrences)
    config = plugin.ProjectorConfig()
    path = str(folder / "projector_config.pbtxt")
    text_format.Parse(Path(path).read_text(encoding="utf-8"), config)
    assert [entry.tensor_name for entry in config.embeddings] == ["layer-0", "layer-1", "layer-2"]
    for layer, entry in enumerate(config.embeddings):
        tensor = plugin._read_tensor_tsv_file(
            plugin._rel_to_abs_asset_path(entry.tensor_path, path)
        )
        assert list(entry.tensor_shape) == list(tensor.shape) == [16, 6]
        np.testing.assert_allclose(tensor, occurrences.vectors[:, layer], rtol=1e-5)
        assert Path(plugin._rel_to_abs_asset_path(entry.metadata_path, path)).is_file()


def test_files_are_replaced_only_when_asked_and_only_if_they_are_ours(tmp_path):
    occurrences = two_senses()
    folder = tmp_path / "vectors"
    write_projector(folder, occurrences)
    (folder / "events").write_text("training curves")
    with pytest.raises(InputError, match="would be overwritten"):
        write_projector(folder, replace(occurrences, labels=None))
    write_projector(folder, occurrences, layers=[2], replace=True)
    assert "layer-0" not in (folder / "projector_config.pbtxt").read_text(encoding="utf-8")
    assert (folder / "events").read_text() == "training curves"
    other = tmp_path / "other"
    other.mkdir()
    (other / "metadata.tsv").write_text("precious")
    with pytest.raises(InputError, match=r"metadata.tsv' would be overwritten"):
        write_projector(other, occurrences, replace=True)
    assert [path.name for path in other.iterdir()] == ["metadata.tsv"]
