"""`epochzero list`: proxies, spaces, searches and experiments."""

from __future__ import annotations

import inspect
from dataclasses import asdict
from statistics import fmean
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
from epochzero.evaluate.evidence import tables
from epochzero.objectives.auto import NAME, NEWEST, VERSIONS
from epochzero.objectives.objective import parse_objective, parse_objectives
from epochzero.registry import Registry, check_known, experiments, options_of, proxies, searches, spaces
from epochzero.spaces.base import native_of
from epochzero.stats.text import short
from epochzero.supernet import methods

KINDS: dict[str, Registry[Any]] = {
    "proxies": proxies,
    "spaces": spaces,
    "searches": searches,
    "experiments": experiments,
}
COLUMNS = {
    "proxies": ["name", "rho", "passes", "what it is"],
    "spaces": ["name", "networks", "input", "classes", "about"],
    "searches": ["name", "options", "about"],
}
"""columns of the tables; --json has all facts"""
RIGHT = ("rho", "networks")
LEGEND = """
  rho: mean Spearman correlation with accuracies (on how many of our tables). A proxy should beat `flops`.
  passes: forward + backward (B: for each sample; L: between blocks; *: needs labels).
  Formula, options, weaknesses, papers and every measured correlation: epochzero list proxies --card NAME"""


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
    columns = COLUMNS[kind]
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in RIGHT else "left"
        table.add_column(column, justify=justify, no_wrap=column == "name")
    for row in rows:
        table.add_row(*(_short(_shown(row, column)) for column in columns))
    out.print(table)
    if kind == "proxies":
        out.print(LEGEND, style="dim")
        default = parse_objective(NAME).text
        (mean, count), members = _quality(default), VERSIONS[NEWEST].members
        out.print(
            f"  {default}, the score where none is named, has {mean} on {count} tables. It joins "
            f"{', '.join(member.scores[0] for member in members)}: epochzero list proxies --card {NAME}",
            style="dim",
        )


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
        spearman, count = _quality(member.text)
        return {
            "paper": card.paper,
            "better": card.better,
            **needs,
            "spearman": spearman,
            "tables": count,
            "passes": f"{card.needs.forward_passes}+{card.needs.backward_passes}",
            "labels": "needed" if card.needs.labels else "",
            "fwd": card.needs.forward_passes,
            "bwd": card.needs.backward_passes,
            "settings": ", ".join(f"{option.name}={option.value}" for option in card.options),
            "about": card.summary.rstrip("."),
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


def _shown(row: dict[str, Any], column: str) -> Any:
    """A cell of the table, which joins some of the facts of a proxy."""
    match column:
        case "rho":
            return f"{row['spearman']} ({row['tables']})" if row["tables"] else ""
        case "passes":
            return f"{row['passes']}{'*' if row['labels'] else ''}"
        case "what it is":
            return row["about"].partition(": ")[2] or row["about"]
    return row[column]


def _quality(name: str) -> tuple[str, int]:
    """The mean Spearman correlation of a score over the tables of our evidence, and the number of these."""
    known = [table.known[name].spearman for table in tables() if name in table.known]
    return (short(fmean(known), 2) if known else "", len(known))


def _short(value: Any) -> str:
    """The value as text; long counts in scientific notation."""
    text = str(value)
    digits = text.replace(",", "")
    return f"{int(digits):.1e}" if digits.isdigit() and len(digits) > 9 else text


def _first_line(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").split("\n", 1)[0].rstrip(".")
