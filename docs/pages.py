"""Generated parts of the site as Markdown: proxies, searches, spaces and the command line.

A page requests one by a mark, `<!-- generated: proxies -->`, which GitHub hides.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from typer.testing import CliRunner

from epochzero.cli import app
from epochzero.cli.loading import loaded
from epochzero.evaluate.cards import Card, card, card_of
from epochzero.evaluate.cards.demands import COUNTS
from epochzero.evaluate.cards.explanation import INDENT
from epochzero.objectives.auto import NAME
from epochzero.objectives.objective import parse_objective
from epochzero.registry import proxies, searches
from epochzero.supernet import methods

MARK = re.compile(r"<!-- generated: (\w+) -->")
EXAMPLES = ("epochzero ", "torchrun ")
"""starts of help paragraphs that are commands"""


def filled(text: str) -> str:
    """Returns a page with its generated parts after their marks."""
    return MARK.sub(lambda mark: f"{mark[0]}\n\n{PARTS[mark[1]]()}", text)


def escaped(text: str) -> str:
    r"""Returns plain text as Markdown: escapes `\*_<>[]|#` outside of `backticks`."""
    pieces = re.split(r"(`[^`]+`)", text)
    plain = (re.sub(r"([\\*_<>\[\]|#])", r"\\\1", piece) for piece in pieces[::2])
    return "".join(piece for pair in zip_longest(plain, pieces[1::2], fillvalue="") for piece in pair)


def cell(text: object) -> str:
    """Returns text for a table cell, where a bar ends the cell even in backticks."""
    return escaped(" ".join(str(text).split())).replace("\\|", "|").replace("|", "\\|")


def code(text: object) -> str:
    """Returns code for a table cell, or nothing if empty."""
    return "`" + str(text).replace("|", "\\|") + "`" if str(text) else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table, or nothing without rows."""
    lines = [" | ".join(row) for row in rows]
    rule = " | ".join("---" for _ in head)
    return "\n".join(f"| {line} |" for line in (" | ".join(head), rule, *lines)) if lines else ""


def fenced(text: str) -> str:
    return f"```text\n{text}\n```"


def joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part)


def docstring(text: str) -> Iterator[str]:
    """Paragraphs in their order; indented ones, formulas and lists of options, as they are written."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        lines = paragraph.splitlines()
        first = next((place for place, line in enumerate(lines) if line.startswith(INDENT)), len(lines))
        if prose := " ".join(lines[:first]):
            yield escaped(prose)
        if lines[first:]:
            yield fenced("\n".join(line.removeprefix(INDENT) for line in lines[first:]))


# ---- proxies


def all_proxies() -> str:
    """A table of all, then a section for their combination `auto` and for each."""
    cards = [card(proxy) for proxy in proxies.values()]
    rows = (
        [
            f"[{escaped(one.name)}](#{one.name})",
            cell(one.paper),
            one.better,
            cell(one.needs.data),
            "needed" if one.needs.labels else "",
            one.needs.forward_passes,
            one.needs.backward_passes,
        ]
        for one in cards
    )
    head = ["proxy", "paper", "better", "data", "labels", "forward", "backward"]
    units = "; ".join(f"{unit}: {meaning}" for unit, meaning in COUNTS.items())
    legend = f"Forward and backward passes at default settings ({units}; own: see the proxy)."
    combination = card_of(parse_objective(NAME))
    return joined([table(head, rows), legend, *map(one_proxy, [combination, *cards])])


def one_proxy(one: Card) -> str:
    """The section of one proxy."""
    options = ([code(option.name), code(_written(option.value)), cell(option.meaning)] for option in one.options)
    bewares = (f"- {escaped(warning[:1].upper() + warning[1:])}" for warning in one.beware)
    return joined(
        [
            f"## {escaped(one.name)}",
            f"{escaped(one.summary)} **{one.better.capitalize()} is better.**",
            fenced(one.formula),
            *map(escaped, one.prose),
            table(["option", "default", "meaning"], options),
            "**Beware**",
            "\n".join(bewares),
            *_figures(one),
            f"*{escaped(one.citation)}*",
        ]
    )


def _figures(one: Card) -> Iterator[str]:
    """Returns the measured and the published figures."""
    ours = (
        [
            code(row.proxy),
            cell(row.space),
            cell(row.data),
            cell(row.target),
            f"{row.n} ({row.unscored})",
            f"{row.spearman:.3f} [{row.low:.3f}, {row.high:.3f}]",
            f"{row.kendall:.3f}",
        ]
        for row in one.measured
    )
    head = ["measured here", "space", "evaluated", "accuracy", "networks (without score)", "Spearman [95 %]", "Kendall"]
    yield table(head, ours)
    if one.measured:
        where = dict.fromkeys(f"seed {row.seed} on {row.machine}, {row.date}" for row in one.measured)
        yield escaped(f"Measured with {'; '.join(where)}.")
    theirs: dict[tuple[str, ...], list[str]] = {}
    for row in one.published:
        theirs.setdefault((row.proxy, row.space, row.statistic, row.source), []).append(f"{row.target} {row.value:g}")
    yield table(
        ["in the papers", "space", "statistic", "accuracy on", "source"],
        (
            [code(proxy), cell(space), statistic, cell(", ".join(values)), cell(source)]
            for (proxy, space, statistic, source), values in theirs.items()
        ),
    )
    costs = (
        f"{row.milliseconds:,.0f} ms and {row.mebibytes:,.0f} MiB a network ({row.network}, batch {row.batch}; "
        f"{row.machine}; {row.date})"
        for row in one.costs
    )
    if one.costs:
        yield "What it takes alone:"
        yield "\n".join(f"- {escaped(cost)}" for cost in costs)
    for row in one.tf32:
        yield escaped(
            f"With TF32 it ranks {row.n} networks of {row.space} as in single precision to {row.spearman:g} "
            f"[{row.low:g}, {row.high:g}] ({row.machine}; {row.date})."
        )


def _written(value: object) -> str:
    """As a setting is written on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---- spaces and searches


def all_spaces() -> str:
    """The table that `epochzero list spaces` shows, in full."""
    rows = _listed("spaces")
    head = ["name", "networks", "input", "classes", "about"]
    return table(head, ([code(row["name"]), *(cell(row[column]) for column in head[1:])] for row in rows))


def all_searches() -> str:
    """A section for each: its options, and the docstring of its file."""
    options = {row["name"]: row["options"] for row in _listed("searches")}
    sections = []
    for registry in (searches, methods):
        for name in registry:
            text = inspect.getmodule(registry[name]).__doc__ or ""
            settings = f"Options with their defaults: `{options[name]}`." if options[name] else ""
            sections += [f"## {escaped(name)}", *docstring(text), settings]
    return joined(sections)


def _listed(kind: str) -> list[dict[str, Any]]:
    """Returns the list that the command prints."""
    ran = CliRunner().invoke(app, ["list", kind, "--json"], catch_exceptions=False)
    found: list[dict[str, Any]] = json.loads(ran.stdout)[kind]
    return found


# ---- the command line


def all_commands() -> str:
    """A section for each command, with the help that it prints."""
    return joined(_command(f"epochzero {name}", command) for name, command in commands_of(loaded()))


def commands_of(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """`list`, ..., `data import`: every command that runs, by its words."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands_of(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def _command(name: str, command: Any) -> str:
    parts = [f"## {name}"]
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
        if paragraph.startswith(EXAMPLES):
            each = re.split(rf"\n(?={'|'.join(EXAMPLES)})", paragraph)
            parts.append(fenced("\n".join(" ".join(example.split()) for example in each)))
        else:
            parts.append(escaped(" ".join(paragraph.split())))
    rows = ([_names(item), cell(_default(item)), cell(item.help or "")] for item in command.params)
    return joined([*parts, table(["option", "default", "meaning"], rows)])


def _names(item: Any) -> str:
    if item.param_type_name == "argument":
        return code(item.metavar or item.name.upper())
    return ", ".join(code(name) for name in (*item.opts, *item.secondary_opts))


def _default(item: Any) -> object:
    if item.required:
        return "required"
    return "" if item.default in (None, "") or item.default is False else item.default


PARTS: dict[str, Callable[[], str]] = {
    "proxies": all_proxies,
    "spaces": all_spaces,
    "searches": all_searches,
    "commands": all_commands,
}
"""by the names in the marks"""
