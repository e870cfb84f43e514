"""The whole way in one command: text, vocabulary, training, perplexity, weights, vectors.

`bilm demo` runs it. The parts return values and print nothing.
"""
