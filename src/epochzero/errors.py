"""The few errors that EpochZero raises on purpose.

A `UserError` is one clear sentence about a mistake that the user can mend: the command line prints it and
ends with exit code 2. Anything else that goes wrong is a failure of the machine or of us: exit code 1.
"""

from __future__ import annotations

from errno import EACCES, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, EPERM, EROFS
from importlib import import_module
from typing import Any

LONGEST = 2000
"""characters of a message"""
PATH_ERRORS = {ENOENT, EACCES, EPERM, EISDIR, ENOTDIR, ENAMETOOLONG, ELOOP, EROFS}
"""errors of the system due to a path from the user"""


class UserError(ValueError):
    """Something the user gave cannot be used. The message says what, where and what to do now.

    The middle of a message that repeats a very long text is left out.
    """

    def __str__(self) -> str:
        text = super().__str__()
        return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"


class UnknownNameError(UserError):
    """A name that no registry knows."""


class DataError(UserError):
    """Data that cannot be read, or does not fit the network."""


class StoreError(UserError):
    """A result store that cannot be opened, read or written as asked."""


class MachineError(RuntimeError):
    """The machine failed us: disk full, out of memory. Exit code 1, nothing lost."""


class DegenerateError(Exception):
    """A proxy has no value for this network. The message becomes `Score.why`."""


def needed(module: str, what: str, extra: str) -> Any:
    """An optional module; UserError that says how to install it."""
    try:
        return import_module(module)
    except ImportError:
        raise UserError(f"{what} needs {module.partition('.')[0]}: pip install 'epochzero[{extra}]'.") from None


def explained(error: BaseException) -> tuple[str, int]:
    """The sentence to print for an error, on one line, and the exit code; raises an error that is a bug."""
    if isinstance(error, (UserError, MachineError)):
        sentence, code = str(error), 2 if isinstance(error, UserError) else 1
    elif isinstance(error, OSError):
        sentence = f"{error.strerror or error}: '{error.filename or 'standard output'}'."
        code = 2 if error.filename and error.errno in PATH_ERRORS else 1
    else:
        raise error
    return " ".join(sentence.splitlines()), code
