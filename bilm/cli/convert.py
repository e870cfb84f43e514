"""Make a model of bilm from one of another program.

SOURCE is a model of ELMoForManyLangs: a folder or a ZIP file with config.json, char.dic, word.dic,
encoder.pkl and token_embedder.pkl. FOLDER gets model.hdf5 and options.json, which
ELMo.from_pretrained, `bilm embed` and `bilm info` read. PyTorch is not needed, and nothing that a
.pkl file names is run: only its tensors are read.

  bilm convert 144.zip elmo-en
  bilm embed text.txt vectors.hdf5 --model elmo-en
"""

from __future__ import annotations

import argparse
import os

from bilm.cli.tensorflow_import import import_tensorflow
from bilm.errors import InputError
from bilm.files import atomic_write

FILES = ("model.hdf5", "options.json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bilm convert`."""
    parser.add_argument("source", metavar="SOURCE", help="folder or ZIP file of the model")
    parser.add_argument("model_dir", metavar="FOLDER", help="model folder to write")
    parser.add_argument("--force", action="store_true", help="overwrite files that exist")


def run(args: argparse.Namespace) -> int:
    """Write the model folder."""
    written = [os.path.join(args.model_dir, name) for name in FILES]
    taken = [path for path in written if os.path.exists(path)]
    if taken and not args.force:
        raise InputError(f"{', '.join(taken)} would be overwritten: --force allows it.")
    import_tensorflow()
    from bilm.conversion import convert_many_langs

    existed = os.path.isdir(args.model_dir)
    os.makedirs(args.model_dir, exist_ok=True)
    try:
        # Both are written before the first gets its name.
        with atomic_write(written[0]) as weights, atomic_write(written[1]) as options:
            convert_many_langs(args.source, weights, options)
    except (InputError, OSError):
        if not existed:
            os.rmdir(args.model_dir)
        raise
    for path in written:
        print(path)
    return 0
