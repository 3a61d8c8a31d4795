"""All generated files of the site, and what is put into pages that are written by hand."""

from __future__ import annotations

from collections.abc import Iterator

import leaderboard_pages
import pages
import proxy_pages
import space_pages

from epochzero.registry import spaces


def generated() -> Iterator[tuple[str, str]]:
    """Every generated file of the site: its path in docs, and its text."""
    yield from proxy_pages.proxy_files()
    for name in spaces:
        yield from space_pages.space_files(name)
    for name, text in pages.all_commands():
        yield f"reference/commands/{name.replace(' ', '-')}.md", text
    yield from leaderboard_pages.board_files()


PARTS = {
    "proxies": proxy_pages.all_proxies,
    "spaces": space_pages.all_spaces,
    "searches": pages.all_searches,
    "commands": pages.command_table,
    "trust": lambda: proxy_pages.where_it_works(proxy_pages.AUTO),
}
"""by the names in the marks"""


def source(name: str, text: str) -> str:
    """Returns the text of a page of the site: with what is generated, and without what has pages of its own."""
    if name == "leaderboard":
        text = leaderboard_pages.index()
    return pages.filled(text, PARTS)
