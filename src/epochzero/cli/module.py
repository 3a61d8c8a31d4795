"""A user's own network, named as `file.py:factory`."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from epochzero.errors import UserError
from epochzero.registry import near_miss

LOADED_AS = "epochzero_user_module"
"""in sys.modules, where dataclasses and others look for the module of a class"""


def load_module(reference: str) -> nn.Module:
    """Run the file and call the factory in it; what it returns has to be a module."""
    file, _, name = reference.rpartition(":")
    if not file or not name.isidentifier():
        raise UserError(f"--module takes file.py:factory, not {reference!r}.")
    path = Path(file)
    if not path.is_file():
        raise UserError(f"There is no file '{file}' to take the module from.")
    spec = importlib.util.spec_from_file_location(LOADED_AS, path)
    if spec is None or spec.loader is None:
        raise UserError(f"'{file}' is no Python file: --module takes file.py:factory.")
    source = importlib.util.module_from_spec(spec)
    sys.modules[LOADED_AS] = source
    with _blaming(file):
        spec.loader.exec_module(source)
    if not hasattr(source, name):
        known = sorted(key for key, value in vars(source).items() if callable(value))
        raise UserError(f"'{file}' has no '{name}'.{near_miss(name, known)} It has {', '.join(known)}.")
    module = getattr(source, name)
    if callable(module) and not isinstance(module, nn.Module):
        with _blaming(reference):
            module = module()
    if not isinstance(module, nn.Module):
        raise UserError(f"'{reference}' gives {type(module).__name__}, not an nn.Module.")
    return module


@contextmanager
def _blaming(reference: str) -> Iterator[None]:
    """Whatever the user's code raises becomes a sentence that names it."""
    try:
        yield
    except (Exception, SystemExit) as error:
        said = (str(error).strip() or "no message").splitlines()[0]
        raise UserError(f"'{reference}' raised {type(error).__name__}: {said}") from error


def picker(which: str | None) -> Callable[[Any], Tensor] | None:
    """`--output logits` or `--output 0`: how to take the logits from what a module returns."""
    if which is None:
        return None

    def pick(returned: Any) -> Tensor:
        if isinstance(returned, Tensor):
            raise UserError("The module's output is a tensor, which has no parts: leave --output out.")
        try:
            picked = returned[int(which)] if re.fullmatch(r"-?\d+", which) else _named(returned, which)
        except (KeyError, IndexError, TypeError, AttributeError):
            raise UserError(f"The module's output ({type(returned).__name__}) has no part '{which}'.") from None
        if not isinstance(picked, Tensor):
            raise UserError(f"Part '{which}' of the module's output is {type(picked).__name__}, not a tensor.")
        return picked

    return pick


def _named(returned: Any, name: str) -> Any:
    return returned[name] if isinstance(returned, dict) else getattr(returned, name)
