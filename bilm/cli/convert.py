"""Convert a model of another program to one of bilm.

SOURCE is a model of ELMoForManyLangs: a folder or a ZIP file with config.json, char.dic, word.dic,
encoder.pkl and token_embedder.pkl; or its name, nlpl-136 to nlpl-179. FOLDER gets model.hdf5 and
options.json, which ELMo.from_pretrained, `bilm embed` and `bilm info` read. PyTorch is not needed,
and no code in the .pkl files is run: only their tensors are read.

  bilm convert 144.zip elmo-en
  bilm convert nlpl-144 elmo-en  # downloads it first
  bilm embed text.txt vectors.hdf5 --model elmo-en
"""

import argparse

from bilm.cli import flags
from bilm.files.model_files import require_known
from bilm.files.reading import OPTIONS_FILE, WEIGHTS_FILE
from bilm.terminal import import_tensorflow


def add_arguments(parser: argparse.ArgumentParser) -> None:
    source, folder = "folder, ZIP file or name of the model", "model folder to write"
    flags.add(parser, {"source SOURCE": source, "model_dir FOLDER": folder} | flags.FORCE)


def run(args: argparse.Namespace) -> int:
    require_known(args.source)
    outputs = flags.model_folder(args, WEIGHTS_FILE, OPTIONS_FILE)
    import_tensorflow()
    from bilm.use.many_langs import convert_many_langs

    convert_many_langs(args.source, *outputs.paths)
    print("\n".join(outputs.paths))
    return 0
