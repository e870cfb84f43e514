"""Distribution metadata: name, version, requirements, extras and the `bilm` command.

Settings of the tools (ruff, mypy, pytest) are in pyproject.toml.
"""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
# Fill this in before a release: the repository's address, such as "https://github.com/OWNER/bilm".
# Project URLs and the links of README.md on a package index come from it; without it, links to
# files become plain text there, and the picture is left out.
REPOSITORY = ""

# An extra that installs one package has the package's name; the others are named for their use.
EXTRAS = {
    "argcomplete": ["argcomplete>=3.5"],
    "huggingface_hub": ["huggingface_hub>=0.34"],
    "jieba": ["jieba>=0.42"],
    "matplotlib": ["matplotlib>=3.8"],
    "pyarrow": ["pyarrow>=18"],
    "seqeval": ["seqeval>=1.2.2"],
    "spacy": ["spacy>=3.8.2,<4"],
    "tensorboard": ["tensorboard>=2.18"],
    # For the subcommands that look at vectors: clusters, static vectors, pictures.
    "look": ["scikit-learn>=1.5", "gensim>=4.4,<5", "matplotlib>=3.8"],
}
DOCS = [
    "latex2mathml>=3.78",
    "mkdocs>=1.6,<2",
    "mkdocs-material>=9.6,<10",
    "mkdocstrings[python]>=0.29,<2",
]
TEST = [
    *sorted({requirement for extra in EXTRAS.values() for requirement in extra}),
    *DOCS,
    # Readers of Parquet besides pyarrow, and engines for tables of vectors.
    "duckdb>=1.3",
    "polars>=1.30",
    "pyspark>=4.0,<5",
    "ray[data]>=2.60,<3",
    "pytest>=8",
    "pytest-timeout>=2.4",
    "pytest-xdist>=3.5",
    "hypothesis>=6.130",
    "selenium>=4.20",
    # ruff's formatter changes with its minor versions, so the check needs one of them.
    "ruff>=0.17,<0.18",
    "mypy>=2.4,<3",
]


def package_version() -> str:
    """Reads __version__ from the source: importing the package would need TensorFlow."""
    source = (ROOT / "bilm" / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"$', source, re.MULTILINE)
    if match is None:
        raise RuntimeError('bilm/__init__.py has no line of the form __version__ = "1.2.3".')
    return match.group(1)


def long_description(repository: str = REPOSITORY) -> str:
    """README.md as a package index shows it: links to files are absolute, or plain text."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    files = r"\((?!https?:|#)([^)\s]+)\)"
    tag = f"v{package_version()}"
    if repository:
        text = re.sub(r"(!\[[^]]*\])" + files, rf"\1({repository}/raw/{tag}/\2)", text)
        return re.sub(r"(\[[^]]*\])" + files, rf"\1({repository}/blob/{tag}/\2)", text)
    text = re.sub(r"!\[[^]]*\]" + files + r"\n*", "", text)
    return re.sub(r"\[([^]]*)\]" + files, r"\1", text)


PAGES = {"Source": "", "Issues": "/issues", "Changelog": "/blob/main/CHANGELOG.md"}

setup(
    name="bilm-keras",
    version=package_version(),
    description="Bidirectional language models and ELMo on TensorFlow 2 and Keras 3",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    author="The bilm developers",
    project_urls={name: REPOSITORY + page for name, page in PAGES.items() if REPOSITORY},
    keywords=[
        "ELMo",
        "bidirectional language model",
        "word vectors",
        "contextual embeddings",
        "word senses",
        "surprisal",
        "TensorFlow",
        "Keras",
    ],
    # The code is Apache-2.0, the weights of two models CC-BY-SA-3.0: see NOTICE.
    license_expression="Apache-2.0 AND CC-BY-SA-3.0",
    license_files=["LICENSE", "NOTICE", "bilm/models/*/LICENSE", "bilm/samples/LICENSE"],
    packages=find_packages(include=["bilm", "bilm.*"]),
    # Makes an editable install a path, which has precedence over a folder named bilm: without it,
    # `python -m bilm` fails in the folder above a clone.
    package_dir={"": "."},
    # Models that are part of the package are folders of options, weights, licence and model card.
    package_data={
        "bilm": [
            "py.typed",
            "data/*.json",
            "models/*.json",
            "models/*/*",
            "samples/*",
            "analysis/*.css",
            "analysis/*.html",
        ],
    },
    # The lower bounds are the versions that the tests were run with on Python 3.10; the newest that
    # they were run with are in CONTRIBUTING.md.
    python_requires=">=3.10",
    install_requires=[
        "tensorflow>=2.18",
        "keras>=3.12,<4",
        "numpy>=1.26.4",
        "h5py>=3.11",
        "pooch>=1.8",
        "rich>=13",
        "wrapt>=1.14",
    ],
    extras_require={
        **EXTRAS,
        "onnx": ["onnxruntime>=1.18", "tf2onnx>=1.17"],
        "docs": DOCS,
        "test": TEST,
    },
    entry_points={"console_scripts": ["bilm=bilm.cli:main"]},
    # What CI runs the tests on.
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Education",
        "Intended Audience :: Science/Research",
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
)
