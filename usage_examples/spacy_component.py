"""ELMo in a spaCy pipeline: `doc.tensor`, and `token.vector` by a user hook.

nlp = spacy.blank("en")
nlp.add_pipe("elmo", config={"model": "english"})
print(nlp("They play cards.")[1].vector.shape)

Each sentence is computed alone if the pipeline finds sentences, for example by `sentencizer`.
Keep `n_process` of `nlp.pipe` at 1: TensorFlow does not work in a forked process.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import minibatch

from bilm import ELMo


@Language.factory("elmo", default_config={"model": "english", "layers": "average"})
class ELMoComponent:
    def __init__(self, nlp: Language, name: str, model: str, layers: str) -> None:
        self.elmo, self.layers = ELMo.from_pretrained(model), layers

    def __call__(self, doc: Doc) -> Doc:
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], batch_size: int = 128) -> Iterator[Doc]:
        """The documents of `nlp.pipe`, computed in batches."""
        for docs in minibatch(stream, batch_size):
            words = [
                [token for token in sentence if not token.is_space]
                for doc in docs
                for sentence in (doc.sents if doc.has_annotation("SENT_START") else [doc])
            ]
            # Merged entities have spaces: New York is read as New_York.
            texts = [["_".join(token.text.split()) for token in sentence] for sentence in words]
            for doc in docs:
                doc.tensor = np.zeros((len(doc), self.elmo.dim), np.float32)  # for white space
                doc.user_token_hooks["vector"] = lambda token: token.doc.tensor[token.i]
                doc.user_hooks["vector"] = lambda doc: doc.tensor.sum(axis=0) / max(1, len(doc))
            for sentence, rows in zip(words, self.elmo.encode(texts, self.layers), strict=True):
                for token, row in zip(sentence, rows, strict=True):
                    token.doc.tensor[token.i] = row
            yield from docs
