"""Use of a trained model: from ids to vectors, from text to vectors, and from files to files."""

from bilm.use.bidirectional import BidirectionalLanguageModel
from bilm.use.elmo_embedding import ELMoEmbedding
from bilm.vectors.dump_embeddings import dump_bilm_embeddings, dump_token_embeddings

__all__ = [
    "BidirectionalLanguageModel",
    "ELMoEmbedding",
    "dump_bilm_embeddings",
    "dump_token_embeddings",
]
