"""`--plugin`: a user's own spaces, proxies and searches, which register themselves when they are imported.

`file.py:NAME` names a space in a file, such as one of `ez.choices`, which need not register itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from epochzero.errors import UserError
from epochzero.registry import proxies, searches, spaces
from epochzero.spaces.base import check_complete
from epochzero.user_code import blaming, is_reference, member_of, run_file

named: list[str] = []
"""the spaces that --space named as file.py:NAME, which workers load too"""


def load_plugins(references: Iterable[str] | None) -> None:
    """Imports each file or module once."""
    if not references:
        return
    for registry in (proxies, searches, spaces):
        len(registry)  # loads ours first, so that a duplicate name is reported for the plug-in
    for reference in references:
        if is_reference(reference):
            _load_space(reference)
        elif reference.endswith(".py") or Path(reference).exists():
            _load_file(reference)
        else:
            _load_module(reference)


def space_name(text: str | None) -> str | None:
    """Returns the name of a space that --space gives; that of file.py:NAME is loaded.

    A file that is missing is no space by any name, as the command says when it looks for it.
    """
    if text is None or not is_reference(text) or not Path(text.rpartition(":")[0]).is_file():
        return text
    load_plugins([text])
    named.append(text)
    return _load_space(text)


def absolute(reference: str) -> str:
    """The same file, module or file.py:NAME for processes in other folders."""
    file, colon, name = reference.rpartition(":") if is_reference(reference) else (reference, "", "")
    return f"{Path(file).resolve()}{colon}{name}" if Path(file).exists() else reference


def _load_space(reference: str) -> str:
    """Registers the space that file.py:NAME names, and returns its name."""
    file, _, name = reference.rpartition(":")
    space = member_of(_load_file(file), file, name)
    if not hasattr(space, "sample"):
        raise UserError(f"'{reference}' is {type(space).__name__}, not a space: make one by ez.choices(build, ...).")
    check_complete(space)
    if space.name not in spaces:
        spaces.register(space.name, space, origin=reference)
    return str(space.name)


def _load_file(file: str) -> ModuleType:
    name = f"epochzero_plugin {Path(file).resolve()}"
    if name in sys.modules:
        return sys.modules[name]
    try:
        return run_file(file, name)
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
