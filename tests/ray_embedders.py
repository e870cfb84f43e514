"""Embedders for workers of Ray, which import them from here."""

from __future__ import annotations

import os

from bilm import TableEmbedder


class DeadlyEmbedder(TableEmbedder):
    """Ends the process at a sentence with the word "deadly"."""

    def batches(self, batches, *more):
        """As those of `TableEmbedder`."""

        def checked():
            for batch in batches:
                if any("deadly" in text for text in batch.column("text").to_pylist()):
                    os._exit(1)
                yield batch

        return super().batches(checked(), *more)
