"""Draw the occurrences of words, layer by layer, in two dimensions.

The occurrences come from a file of `bilm senses` or `neighbours --occurrences`, or from --labels.
Colours show the labels or the clusters of `bilm senses`; without clusters, up to three words are
clustered in the same way. Layer 0 does not depend on the context and is drawn only with --layer 0.
The ending of --out sets the format:

  .html    one page that works offline: typical sentences of each cluster, a
           search, and for each dot its sentence and nearest neighbours
  .png     a picture; .svg for a scalable one

Requires scikit-learn for pictures, and matplotlib for .png and .svg.

  bilm senses bank spring --model elmo --text text.txt --occurrences uses.npz
  bilm project --occurrences uses.npz --out both.html
  bilm project bank --occurrences uses.npz --method tsne --out bank.png
  bilm project --labels labelled.tsv --model elmo --layer top --out senses.svg
"""

import argparse

from bilm import analysis
from bilm.cli import flags, text_command
from bilm.core.errors import import_extra
from bilm.progress import ProgressDisplay
from bilm.terminal import note

_LARGE_PAGE = 10_000_000  # bytes; a larger page is slow in a browser
_MOST_CLUSTERED = 3  # words; more are coloured by word


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"words WORD": "words to draw (default: all)"}, nargs="*")
    text_command.add_model(parser)
    sources = {
        "--occurrences FILE": "occurrences with their vectors (.npz)",
        "--labels FILE": "lines of a label, a tab, and a sentence with one [word]; needs --model",
    }
    flags.add(parser.add_argument_group("occurrences"), sources)
    group = parser.add_argument_group("picture")
    flags.add(group, {"--out FILE": "picture to write: .html, .png or .svg"}, required=True)
    flags.add(
        group,
        {
            **flags.FORCE,
            "--method pca|tsne": "pca preserves large distances, tsne neighbourhoods; tsne is "
            "slower (default: pca)",
            "--colour label|cluster|word": "property shown by colours (default: the first one that "
            "the occurrences have)",
            "--layer LAYER": "draw only this layer: a number, or top (default: all but layer 0)",
        },
    )
    parser.set_defaults(method="pca", match_case=False)


def run(args: argparse.Namespace) -> int:
    if (args.labels is None) == (args.occurrences is None):
        flags.usage_error(args, "name --occurrences or --labels")
    if args.labels is None:
        flags.require_effect(args, "--labels, whose vectors it computes", "model")
    elif args.words:
        flags.usage_error(args, "--labels draws all its words")
    is_page = analysis.picture_ending(args.out) == ".html"
    flags.outputs(args, out=args.out)
    for module in ("sklearn",) if is_page else ("sklearn", "matplotlib"):
        import_extra(module, "bilm project")
    if args.labels is None:
        occurrences = text_command.load_uses(args, text_command.distinct(args, args.words))
    else:
        flags.model_source(args)
        text_command.check_layer(args)
        occurrences = text_command.with_vectors(args, analysis.read_labelled_uses(args.labels))
    is_clustered = args.colour == "cluster"
    if args.colour is None and occurrences.labels is None:
        is_clustered = len(set(occurrences.names)) <= _MOST_CLUSTERED
    if occurrences.clusters is None and is_clustered:
        occurrences = analysis.with_clusters(occurrences)
    with ProgressDisplay() as display:
        layers = None if args.layer is None else [args.layer]
        projection = analysis.project(
            occurrences, args.method, layers=layers, progress=display.show
        )
    size = analysis.write_picture(args.out, occurrences, projection, colour=args.colour)
    if is_page and size > _LARGE_PAGE:
        note(
            f"{args.out} has {size / 1e6:.0f} MB, slow in a browser: --max_occurrences of "
            "`bilm senses` makes it smaller."
        )
    print(args.out)
    return 0
