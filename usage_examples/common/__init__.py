"""Shared code of the task programs.

reading.py      examples from files
vectors.py      token vectors: ELMo, static, learned
layers.py       layers missing from Keras
tags.py         tags of spans, and their measure
classes.py      examples with one of several labels, and their measure
experiment.py   flags, batches, training, early stopping, seeds, results
"""
