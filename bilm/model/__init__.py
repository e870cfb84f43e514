"""Use of a trained model: from ids to vectors, from text to vectors, and from files to files."""

from bilm.model.bidirectional import BidirectionalLanguageModel
from bilm.model.dump import dump_bilm_embeddings, dump_token_embeddings
from bilm.model.elmo_embedding import ELMoEmbedding
from bilm.model.elmo_vectors import ELMo

__all__ = [
    "BidirectionalLanguageModel",
    "ELMo",
    "ELMoEmbedding",
    "dump_bilm_embeddings",
    "dump_token_embeddings",
]
