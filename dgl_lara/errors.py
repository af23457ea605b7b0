"""The two kinds of failure a user can meet; the command line turns each into one sentence and an exit code."""


class LaraError(Exception):
    """Something went wrong at run time (exit code 1)."""

    exit_code = 1


class InputError(LaraError, ValueError):
    """What was given does not fit (exit code 2)."""

    exit_code = 2


class ModelError(LaraError, RuntimeError):
    """The model that is to be explained fails, or answers something that cannot be explained (exit code 1)."""
