"""`--plugin`: a user's own spaces, proxies and searches, which register themselves when they are imported."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from epochzero.errors import UserError
from epochzero.registry import proxies, searches, spaces
from epochzero.user_code import blaming, run_file


def load_plugins(references: Iterable[str] | None) -> None:
    """Imports each file or module once."""
    if not references:
        return
    for registry in (proxies, searches, spaces):
        len(registry)  # loads ours first, so that a duplicate name is reported for the plug-in
    for reference in references:
        if reference.endswith(".py") or Path(reference).exists():
            _load_file(reference)
        else:
            _load_module(reference)


def _load_file(file: str) -> None:
    name = f"epochzero_plugin {Path(file).resolve()}"
    if name in sys.modules:
        return
    try:
        run_file(file, name)
    except UserError:
        sys.modules.pop(name, None)
        raise


def _load_module(name: str) -> None:
    try:
        exists = all(part.isidentifier() for part in name.split(".")) and find_spec(name) is not None
    except ModuleNotFoundError:
        exists = False
    if not exists:
        raise UserError(f"There is no module '{name}' to plug in: install it, or give the path of a file.py.")
    with blaming(name):
        import_module(name)
