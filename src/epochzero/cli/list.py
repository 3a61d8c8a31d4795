"""`epochzero list`: proxies, spaces, searches and experiments."""

from __future__ import annotations

import inspect
from dataclasses import asdict
from typing import Annotated, Any, Literal

from rich.table import Table
from typer import Argument, Option

from epochzero.cli.card import show_card
from epochzero.cli.console import out, print_json
from epochzero.cli.experiments import DATA_FOLDER, show_experiments
from epochzero.cli.options import AsJson, DataFolder, Plugins
from epochzero.cli.plugin import load_plugins
from epochzero.data.batch import shape_text
from epochzero.engine import Proxy
from epochzero.errors import UserError
from epochzero.evaluate.cards import card as proxy_card
from epochzero.evaluate.cards import card_of
from epochzero.objectives.auto import NAME
from epochzero.objectives.objective import parse_objective, parse_objectives
from epochzero.registry import Registry, check_known, experiments, options_of, proxies, searches, spaces
from epochzero.spaces.base import native_of
from epochzero.supernet import methods

KINDS: dict[str, Registry[Any]] = {
    "proxies": proxies,
    "spaces": spaces,
    "searches": searches,
    "experiments": experiments,
}
COLUMNS = {
    "proxies": ["name", "paper", "better", "data", "labels", "fwd", "bwd", "layers"],
    "spaces": ["name", "networks", "input", "classes", "about"],
    "searches": ["name", "options", "about"],
}
"""columns of the tables; --json has all facts"""
WIDE = 100
"""width of a terminal from which papers are listed, too"""
LEGEND = """
  fwd, bwd: forward and backward passes at default settings (B: for each sample; L: between blocks).
  Formula, options, cost, weaknesses and measured correlations: epochzero list proxies --card NAME"""


def list_(
    kind: Annotated[str, Argument(metavar="proxies|spaces|searches|experiments", help="What to list.")],
    card: Annotated[str | None, Option(help="Everything about these proxies, or `all`.")] = None,
    folder: DataFolder = DATA_FOLDER,
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """List the proxies, search spaces, searches or experiments, each with its facts.

    epochzero list proxies

    epochzero list proxies --card dextr
    """
    load_plugins(plugin)
    check_known(kind, KINDS, f"There is nothing called '{kind}' to list")
    if card is not None:
        _show_cards(kind, card, json)
        return
    if kind == "experiments":
        show_experiments(folder, json)
        return
    registries = (searches, methods) if kind == "searches" else (KINDS[kind],)
    rows = [
        {"name": name, **_facts(registry[name]), "origin": registry.origins[name]}
        for registry in registries
        for name in registry
    ]
    if json:
        print_json({kind: rows})
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    columns = [column for column in COLUMNS[kind] if column != "paper" or out.width >= WIDE]
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in ("fwd", "bwd", "networks") else "left"
        table.add_column(column, justify=justify, no_wrap=column == "name")
    for row in rows:
        table.add_row(*(_short(row[column]) for column in columns))
    out.print(table)
    if kind == "proxies":
        out.print(LEGEND, style="dim")
        newest = parse_objective(NAME)
        out.print(f"  {newest.text}, which combines some of them: {newest.about}", style="dim")


def _show_cards(kind: str, asked: str, json: bool) -> None:
    if kind != "proxies":
        raise UserError(f"--card is for proxies; write `epochzero list proxies --card {asked}`.")
    cards = [card_of(one) for one in parse_objectives(",".join(proxies) if asked == "all" else asked)]
    if json:
        print_json({"cards": [asdict(card) for card in cards]})
        return
    for place, card in enumerate(cards):
        if place:
            out.print("\n")
        show_card(card)


def _facts(member: Any) -> dict[str, Any]:
    if isinstance(member, Proxy):
        card = proxy_card(member)
        needs = asdict(card.needs)
        return {
            "paper": card.paper,
            "better": card.better,
            **needs,
            "labels": "needed" if card.needs.labels else "",
            "fwd": card.needs.forward_passes,
            "bwd": card.needs.backward_passes,
            "settings": ", ".join(f"{option.name}={option.value}" for option in card.options),
            "about": card.summary,
        }
    if inspect.isclass(member):
        settings = ", ".join(f"{name}={default}" for name, default in options_of(member).items())
        return {"options": settings, "about": _first_line(inspect.getmodule(member))}
    about = _first_line(inspect.getmodule(type(member)))
    size = f"{member.count():,}" if hasattr(member, "count") else ""
    native = native_of(member)
    made_for = {} if native is None else {"input": shape_text(native[0]), "classes": native[1]}
    about = getattr(member, "about", about).rstrip(".")
    return {"networks": size, "input": "", "classes": "", **made_for, "about": about}


def _short(value: Any) -> str:
    """The value as text; long counts in scientific notation."""
    text = str(value)
    digits = text.replace(",", "")
    return f"{int(digits):.1e}" if digits.isdigit() and len(digits) > 9 else text


def _first_line(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").split("\n", 1)[0].rstrip(".")
