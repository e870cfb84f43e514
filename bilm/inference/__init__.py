"""Running sentences through a network: vectors and scores, for training and for use."""
