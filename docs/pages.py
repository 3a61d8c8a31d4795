"""Generated parts of the site as Markdown: searches and the command line; `catalogue.py` has proxies and spaces.

A page requests one by a mark, `<!-- generated: searches -->`, which GitHub hides.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import zip_longest
from typing import Any

from typer.testing import CliRunner

from epochzero.cli import app
from epochzero.cli.loading import loaded
from epochzero.evaluate.cards.explanation import INDENT
from epochzero.registry import searches
from epochzero.supernet import methods

MARK = re.compile(r"<!-- generated: (\w+) -->")
EXAMPLES = ("epochzero ", "torchrun ")
"""starts of help paragraphs that are commands"""


def filled(text: str, parts: Mapping[str, Callable[[], str]]) -> str:
    """Returns a page with its generated parts after their marks."""
    return MARK.sub(lambda mark: f"{mark[0]}\n\n{parts[mark[1]]()}", text)


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


def within(pattern: str) -> str:
    """Puts pages below this one in the sidebar."""
    return f"```{{toctree}}\n:hidden:\n:glob:\n\n{pattern}\n```"


def fenced(text: str, language: str = "text") -> str:
    return f"```{language}\n{text}\n```"


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


# ---- searches


def all_searches() -> str:
    """A section for each: its options, and the docstring of its file."""
    options = {row["name"]: row["options"] for row in listed("searches")}
    sections = []
    for registry in (searches, methods):
        for name in registry:
            text = inspect.getmodule(registry[name]).__doc__ or ""
            settings = f"Options with their defaults: `{options[name]}`." if options[name] else ""
            sections += [f"## {escaped(name)}", *docstring(text), settings]
    return joined(sections)


@cache
def listed(kind: str) -> list[dict[str, Any]]:
    """Returns the list that the command prints."""
    ran = CliRunner().invoke(app, ["list", kind, "--json"], catch_exceptions=False)
    found: list[dict[str, Any]] = json.loads(ran.stdout)[kind]
    return found


# ---- the command line


def all_commands() -> list[tuple[str, str]]:
    """Each command with its page: the help that it prints."""
    return [(name, _command(f"epochzero {name}", command)) for name, command in commands_of(loaded())]


def command_table() -> str:
    """A table of all commands, each with a link to its page."""
    rows = (
        [
            f"[epochzero {name}](commands/{name.replace(' ', '-')}.md)",
            cell(re.split(r"\n\s*\n", inspect.cleandoc(command.help or ""))[0]),
        ]
        for name, command in commands_of(loaded())
    )
    return joined([table(["command", "what it does"], rows), within("commands/*")])


def commands_of(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """`list`, ..., `data import`: every command that runs, by its words."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands_of(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def _command(name: str, command: Any) -> str:
    parts = [f"# {name}"]
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
