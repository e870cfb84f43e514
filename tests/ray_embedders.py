"""Embedders for Ray workers, which import them from here."""

from __future__ import annotations

import os
import signal

from bilm import TableEmbedder


class DeadlyEmbedder(TableEmbedder):
    """Kills its process at a sentence that contains "deadly"."""

    def batches(self, batches, *more):
        """See `TableEmbedder.batches`."""

        def checked():
            for batch in batches:
                if any("deadly" in text for text in batch.column("text").to_pylist()):
                    os.kill(os.getpid(), signal.SIGKILL)
                yield batch

        return super().batches(checked(), *more)
