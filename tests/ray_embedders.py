"""Embedders for workers of Ray, which import them from here."""

from __future__ import annotations

import os
import signal

from bilm import TableEmbedder


class DeadlyEmbedder(TableEmbedder):
    """Ends the process at a sentence with the word "deadly"."""

    def batches(self, batches, *more):
        """As those of `TableEmbedder`."""

        def checked():
            for batch in batches:
                if any("deadly" in text for text in batch.column("text").to_pylist()):
                    os.kill(os.getpid(), signal.SIGKILL)
                yield batch

        return super().batches(checked(), *more)
