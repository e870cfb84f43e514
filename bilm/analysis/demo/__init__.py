"""The text of `bilm demo`, and the choice of the words that it shows."""
