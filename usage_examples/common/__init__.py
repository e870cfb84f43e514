"""What the programs of a task share.

reading.py      examples from files
vectors.py      what stands for a token: ELMo, static vectors, learned ones
layers.py       parts of models that Keras does not have
tags.py         tags of spans, and their measure
classes.py      examples with one of several labels, and their measure
experiment.py   flags, batches, training, early stopping, seeds, results
"""
