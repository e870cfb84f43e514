"""Use of a trained model: from ids to vectors, and from files to files."""

from bilm.model.bidirectional import BidirectionalLanguageModel
from bilm.model.dump import dump_bilm_embeddings, dump_token_embeddings

__all__ = ["BidirectionalLanguageModel", "dump_bilm_embeddings", "dump_token_embeddings"]
