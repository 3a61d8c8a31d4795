"""A user's own network, named as `file.py:factory`."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from epochzero.errors import UserError


def load_module(reference: str) -> nn.Module:
    """Run the file and call the factory in it; what it returns has to be a module."""
    file, _, name = reference.rpartition(":")
    if not file or not name.isidentifier():
        raise UserError(f"--module takes file.py:factory, not {reference!r}.")
    path = Path(file)
    if not path.is_file():
        raise UserError(f"There is no file '{file}' to take the module from.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UserError(f"'{file}' is no Python file: --module takes file.py:factory.")
    source = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(source)
        factory = getattr(source, name, None)
        module = factory() if callable(factory) else factory
    except Exception as error:
        raise UserError(f"'{reference}' raised {type(error).__name__}: {error}") from error
    if not isinstance(module, nn.Module):
        known = ", ".join(sorted(key for key, value in vars(source).items() if callable(value)))
        raise UserError(f"'{reference}' gives {type(module).__name__}, not an nn.Module; '{file}' has {known}.")
    return module


def picker(which: str | None) -> Callable[[Any], Tensor] | None:
    """`--output logits` or `--output 0`: how to take the logits from what a module returns."""
    if which is None:
        return None

    def pick(returned: Any) -> Tensor:
        try:
            picked = returned[int(which)] if which.lstrip("-").isdigit() else _named(returned, which)
        except (KeyError, IndexError, TypeError, AttributeError):
            raise UserError(f"The module's output ({type(returned).__name__}) has no part '{which}'.") from None
        if not isinstance(picked, Tensor):
            raise UserError(f"Part '{which}' of the module's output is {type(picked).__name__}, not a tensor.")
        return picked

    return pick


def _named(returned: Any, name: str) -> Any:
    return returned[name] if isinstance(returned, dict) else getattr(returned, name)
