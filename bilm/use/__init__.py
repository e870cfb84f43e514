"""A trained model in use: ELMo vectors, Keras layers, predictions, saved models."""
