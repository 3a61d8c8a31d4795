"""Files of Python that users name, and objects in them: `nets.py:make`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from epochzero.errors import UserError
from epochzero.registry import near_miss


def run_file(file: str, name: str | None = None) -> ModuleType:
    """Runs a Python file as the module of that name; it may import its neighbours, as a script may."""
    path = Path(file)
    if not path.is_file():
        raise UserError(f"There is no file '{file}' to run.")
    name = name or f"epochzero_user {path.resolve()}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UserError(f"'{file}' is no Python file: its name has to end with .py.")
    source = importlib.util.module_from_spec(spec)
    sys.modules[name] = source  # where dataclasses and others look for the module of a class
    if (folder := str(path.resolve().parent)) not in sys.path:
        sys.path.insert(0, folder)
    with blaming(file):
        spec.loader.exec_module(source)
    return source


def is_reference(text: object) -> bool:
    """True for a text such as `nets.py:make`."""
    return isinstance(text, str) and text.rpartition(":")[0].endswith(".py")


def is_named(text: str) -> bool:
    """True for a text `file:name` that may name an object."""
    file, _, name = text.rpartition(":")
    return bool(file) and name.isidentifier()


def named_in(reference: str, option: str = "--module") -> Any:
    """The object that `file.py:name` names."""
    file, _, name = reference.rpartition(":")
    if not is_named(reference):
        raise UserError(f"{option} takes file.py:factory, not {reference!r}.")
    return member_of(run_file(file), file, name)


def member_of(source: ModuleType, file: str, name: str) -> Any:
    """The object of that name in the file that was run."""
    if not hasattr(source, name):
        known = sorted(
            key
            for key, value in vars(source).items()
            if callable(value) and getattr(value, "__module__", "") == source.__name__
        )
        raise UserError(f"'{file}' has no '{name}'.{near_miss(name, known)} It has {', '.join(known) or 'none'}.")
    return getattr(source, name)


@contextmanager
def blaming(reference: str) -> Iterator[None]:
    """Whatever the user's code raises becomes a sentence that names it."""
    try:
        yield
    except (Exception, SystemExit) as error:
        said = (str(error).strip() or "no message").splitlines()[0]
        raise UserError(f"'{reference}' raised {type(error).__name__}: {said}") from error
