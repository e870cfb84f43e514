"""Vectors of much text: streams of sentences through a network, and the files that they go to."""

from bilm.embedding.vector_files import PackedVectors

__all__ = ["PackedVectors"]
