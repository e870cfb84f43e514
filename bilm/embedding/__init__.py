"""Vectors of much text: streams of sentences through a network, and the files that they go to."""

from bilm.embedding.embedding_file import PackedVectors

__all__ = ["PackedVectors"]
