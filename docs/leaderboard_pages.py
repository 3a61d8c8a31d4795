"""The leaderboard on the site: its rows by score, and a page for each table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pages import escaped, joined, within

DOCS = Path(__file__).parent


def slug(title: str) -> str:
    return re.sub(r"\W+", "-", title).strip("-").lower()


@cache
def leaderboard_parts() -> tuple[str, list[str]]:
    """The leaderboard's page up to its tables, and a page for each table."""
    head, *boards = re.split(
        r"^### (?!On some|Chosen)", (DOCS / "leaderboard.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    return head.strip(), [f"# {board.strip()}\n" for board in boards]


class Standing(NamedTuple):
    """A row of the leaderboard."""

    tables: str
    """all, or some"""
    mean: str
    worst: str
    place: int
    of: int


@cache
def standings() -> dict[str, Standing]:
    """The rows of the first two parts of the leaderboard, by score."""
    whole, some = leaderboard_parts()[0].split("### On some")
    found: dict[str, Standing] = {}
    for part, tables in ((some, "some"), (whole, "all")):
        rows = [line.strip("| \n").split(" | ") for line in part.splitlines() if line.startswith("| `")]
        for place, row in enumerate(rows, 1):
            found[row[0].strip("`")] = Standing(tables, row[1], row[2], place, len(rows))
    return found


def leaderboard_index() -> str:
    """Links to the pages of the tables."""
    titles = [board.partition("\n")[0] for board in leaderboard_parts()[1]]
    return "\n".join(f"- [{escaped(title)}](leaderboard/{slug(title)}.md)" for title in titles)


def index() -> str:
    """The page without the parts that have pages of their own."""
    head = "Each table has a page with all figures:"
    return joined([leaderboard_parts()[0], head, leaderboard_index(), within("leaderboard/*")])


def board_files() -> Iterator[tuple[str, str]]:
    for board in leaderboard_parts()[1]:
        yield f"leaderboard/{slug(board.splitlines()[0])}.md", board
