"""ELMo in a spaCy pipeline: `doc.tensor`, and `token.vector` by a user hook.

nlp = spacy.blank("en")
nlp.add_pipe("elmo", config={"model": "english"})
print(nlp("They play cards.")[1].vector.shape)

Each sentence is computed alone if the pipeline finds sentences, for example by `sentencizer`.
Keep `n_process` of `nlp.pipe` at 1: TensorFlow does not work in a forked process.
"""

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc

from bilm import ELMo


@Language.factory("elmo", default_config={"model": "english", "layers": "average"})
class ELMoComponent:
    def __init__(self, nlp: Language, name: str, model: str, layers: str) -> None:
        self.elmo, self.layers = ELMo.from_pretrained(model), layers

    def __call__(self, doc: Doc) -> Doc:
        sentences = list(doc.sents) if doc.has_annotation("SENT_START") else [doc]
        words = [[token for token in sentence if not token.is_space] for sentence in sentences]
        # Merged entities have spaces: New York is read as New_York.
        texts = [["_".join(token.text.split()) for token in sentence] for sentence in words]
        vectors = self.elmo.encode(texts, self.layers)
        doc.tensor = np.zeros((len(doc), self.elmo.dim), np.float32)  # zeros for white space
        for sentence, rows in zip(words, vectors, strict=True):
            doc.tensor[[token.i for token in sentence]] = rows
        doc.user_token_hooks["vector"] = lambda token: token.doc.tensor[token.i]
        doc.user_hooks["vector"] = lambda doc: doc.tensor.sum(axis=0) / max(1, len(doc))
        return doc
