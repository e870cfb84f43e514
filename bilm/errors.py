"""The one exception of the package that is meant for the person at the keyboard."""

from __future__ import annotations


class InputError(ValueError):
    """Something that the user can mend: a file's content, an option, an argument.

    The message names the file, the line or dataset, the rule, and what was received. The command
    line prints it without a traceback. A path that does not exist is a ``FileNotFoundError``.
    """


class TrainingError(RuntimeError):
    """A training run that cannot go on; what it had saved stays."""


class NotFiniteError(TrainingError):
    """A loss or a variable is not finite."""


class WorkersError(TrainingError):
    """Another worker of the run has stopped."""


class WorkerLostError(WorkersError):
    """Another worker of the run cannot be reached any more."""
