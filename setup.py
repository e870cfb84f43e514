"""What pip reads: name, version, requirements and the `bilm` command.

Settings of the tools (ruff, mypy, pytest) are in pyproject.toml.
"""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
# For the subcommands that look at vectors: clusters, static vectors, pictures.
LOOK = ["scikit-learn>=1.5", "gensim>=4.4,<5", "matplotlib>=3.8"]
# What `bilm embed` needs for Parquet and for tables of vectors.
PARQUET = ["pyarrow>=18"]
# What `bilm embed --engine ray` needs.
RAY = ["ray[data]>=2.60,<3", *PARQUET]
# What models on Hugging Face need.
HUB = ["huggingface_hub>=0.34"]

# What the site of the manual is built with.
DOCS = ["mkdocs>=1.6,<2", "mkdocs-material>=9.6,<10", "mkdocstrings[python]>=0.29,<2"]


def package_version() -> str:
    """Reads __version__ from the source: importing the package would need TensorFlow."""
    source = (ROOT / "bilm" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', source, re.MULTILINE)
    if found is None:
        raise RuntimeError('bilm/__init__.py has no line of the form __version__ = "1.2.3".')
    return found.group(1)


def long_description() -> str:
    """README.md, or nothing in a tree that has none."""
    readme = ROOT / "README.md"
    return readme.read_text(encoding="utf-8") if readme.exists() else ""


setup(
    name="bilm-keras",
    version=package_version(),
    description="Bidirectional language models and ELMo on TensorFlow 2 and Keras 3",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["bilm", "bilm.*"]),
    # Models that are part of the package are folders of options, weights and a model card.
    package_data={"bilm": ["py.typed", "models/*/*", "analysis/*.css", "analysis/*.html"]},
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
        "chinese": ["jieba>=0.42"],
        "docs": DOCS,
        "english": ["spacy>=3.8.2,<4"],
        "hub": HUB,
        "look": LOOK,
        "onnx": ["onnxruntime>=1.18", "tf2onnx>=1.17"],
        "parquet": PARQUET,
        "plot": ["matplotlib>=3.8"],
        "ray": RAY,
        "tasks": ["seqeval>=1.2.2"],
        "tensorboard": ["tensorboard>=2.18"],
        # ruff's formatter changes with its minor versions, so the check needs one of them.
        "test": [
            *LOOK,
            *PARQUET,
            *RAY,
            *DOCS,
            *HUB,
            # Readers of Parquet besides pyarrow.
            "duckdb>=1.3",
            "polars>=1.30",
            "pytest>=8",
            "pytest-timeout>=2.4",
            "pytest-xdist>=3.5",
            "seqeval>=1.2.2",
            "tensorboard>=2.18",
            "selenium>=4.20",
            "ruff>=0.17,<0.18",
            "mypy>=2.4,<3",
            "hypothesis>=6.130",
            "jieba>=0.42",
            "spacy>=3.8.2,<4",
        ],
    },
    entry_points={"console_scripts": ["bilm=bilm.cli:main"]},
    classifiers=[
        "License :: OSI Approved :: Apache Software License",
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
