"""The paper as code: options, token encoder, LSTM, softmax, scalar mix, network, language model.

Imports TensorFlow, Keras, NumPy and nothing else of the package. docs/reading.md gives the order
in which to read it.
"""
