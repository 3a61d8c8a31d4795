"""`epochzero list`: what there is."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer
from rich.table import Table

from epochzero.cli.console import out, print_json
from epochzero.cli.options import AsJson
from epochzero.engine import Proxy
from epochzero.errors import UnknownNameError
from epochzero.registry import Registry, near_miss, proxies, searches, spaces

KINDS: dict[str, Registry[Any]] = {"proxies": proxies, "spaces": spaces, "searches": searches}


def list_(
    kind: Annotated[str, typer.Argument(metavar="proxies|spaces|searches", help="What to list.")],
    json: AsJson = False,
) -> None:
    """List the proxies, search spaces or searches, each with its facts.

    epochzero list proxies
    """
    if kind not in KINDS:
        hint = near_miss(kind, list(KINDS))
        raise UnknownNameError(f"There is nothing called '{kind}' to list.{hint} Known: {', '.join(KINDS)}.")
    registry = KINDS[kind]
    rows = [{"name": name, **_facts(registry[name]), "origin": registry.origins[name]} for name in registry]
    if json:
        print_json({kind: rows})
        return
    columns = [column for column in rows[0] if column != "origin"]
    table = Table(*columns, box=None, pad_edge=False, header_style="dim")
    for row in rows:
        table.add_row(*(str(row[column]) for column in columns))
    out.print(table)


def _facts(member: Any) -> dict[str, Any]:
    if isinstance(member, Proxy):
        settings = ", ".join(f"{key}={value}" for key, value in member.defaults.items())
        return {
            "better": "higher" if member.higher_is_better else "lower",
            "labels": "needed" if member.needs_labels else "",
            "settings": settings,
            "about": member.summary,
        }
    if callable(getattr(member, "ask", None)) and inspect.isclass(member):
        keyword = [p for p in inspect.signature(member).parameters.values() if p.kind is p.KEYWORD_ONLY]
        settings = ", ".join(f"{p.name}={p.default}" for p in keyword)
        return {"options": settings, "about": _first_line(inspect.getmodule(member))}
    size = f"{member.count():,}" if hasattr(member, "count") else ""
    return {"networks": size, "about": _first_line(inspect.getmodule(type(member)))}


def _first_line(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").split("\n", 1)[0]
