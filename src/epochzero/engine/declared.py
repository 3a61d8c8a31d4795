"""The direction that a proxy's file declares, read without running the file: stored scores are ranked without torch.

    declared("ntk_cond(of=sum)").merit(3.0)        # -3.0: lower is better

Only the proxies of this package can be read so; a plug-in's is loaded.
"""

from __future__ import annotations

import ast
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from epochzero.engine.proxy import Proxy, parse
from epochzero.errors import UserError


def declared(text: str) -> Proxy:
    """Returns a proxy that has a text and a direction and computes nothing, unless it has to be loaded."""
    text = text.replace(" ", "")
    higher = directions().get(text.partition("(")[0])
    if higher is None:
        return parse(text)

    def compute(*_: object) -> NoReturn:
        raise UserError(f"{text} was read from a file of scores and is not computed here.")

    return Proxy(text, compute, (), higher, {})


@cache
def directions() -> dict[str, bool]:
    """True for each proxy of which higher is better, False for the others, by name."""
    package = find_spec("epochzero.proxies")
    folders = package.submodule_search_locations if package is not None else None
    known: dict[str, bool] = {}
    for folder in folders or ():
        for file in sorted(Path(folder).glob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                    if isinstance(node, ast.FunctionDef) and (higher := _higher(decorator)) is not None:
                        known[node.name] = higher
    return known


def _higher(decorator: ast.expr) -> bool | None:
    """Returns what `@proxy(..., higher_is_better=...)` says; None for any other decorator."""
    match decorator:
        case ast.Call(func=ast.Name("proxy"), keywords=keywords):
            for keyword in keywords:
                if keyword.arg == "higher_is_better" and isinstance(keyword.value, ast.Constant):
                    return bool(keyword.value.value)
    return None
