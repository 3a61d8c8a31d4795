"""Files of Python that users name on the command line."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from epochzero.errors import UserError


def run_file(file: str, name: str) -> ModuleType:
    """Run a Python file as the module of that name."""
    if not Path(file).is_file():
        raise UserError(f"There is no file '{file}' to run.")
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UserError(f"'{file}' is no Python file: its name has to end with .py.")
    source = importlib.util.module_from_spec(spec)
    sys.modules[name] = source
    with blaming(file):
        spec.loader.exec_module(source)
    return source


@contextmanager
def blaming(reference: str) -> Iterator[None]:
    """Whatever the user's code raises becomes a sentence that names it."""
    try:
        yield
    except (Exception, SystemExit) as error:
        said = (str(error).strip() or "no message").splitlines()[0]
        raise UserError(f"'{reference}' raised {type(error).__name__}: {said}") from error
