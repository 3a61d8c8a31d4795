"""Writes docs/results/claims.md, the table of what the papers say and what we find, from docs/claims.toml.

python docs/claims.py
"""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
PAGE = DOCS / "results" / "claims.md"
TESTED = ("confirmed", "in part", "not confirmed")
VERDICTS = {
    "confirmed": "confirmed",
    "in part": "confirmed in part",
    "not confirmed": "not confirmed",
    "not tested": "not tested",
    "cannot be tested here": "cannot be tested here",
}
SEEDS, NETWORKS = 2, 20
"""the fewest that a verdict needs"""
HEADS = ("claim", "verdict", "what we find")


def claims() -> list[dict[str, Any]]:
    read: list[dict[str, Any]] = tomllib.loads((DOCS / "claims.toml").read_text(encoding="utf-8"))["claim"]
    return read


def written(entries: list[dict[str, Any]]) -> str:
    """Returns the page."""
    counts = Counter(entry["verdict"] for entry in entries)
    summary = ", ".join(f"{counts[verdict]} {said}" for verdict, said in VERDICTS.items())
    lines = [
        "# What the papers say, what we find",
        "",
        f"**Of {len(entries)} claims of the four works: {summary}.**",
        "",
        f"A verdict rests on at least {SEEDS} seeds and {NETWORKS} networks; with fewer it reads *not tested*, "
        "whatever the figure says. Intervals are 95 %, ± is the standard deviation over seeds. *In part*: some of the "
        "columns, protocols or sizes of the claim, as our figure says. Each figure is explained on the page behind it. "
        "The command measures it again, or says what that takes.",
    ]
    for work in dict.fromkeys(entry["work"] for entry in entries):
        lines += ["", f"## {work}", "", f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
        lines += [_row(entry) for entry in entries if entry["work"] == work]
    return "\n".join(lines) + "\n"


def _row(entry: dict[str, Any]) -> str:
    says = f"{entry['says']}<br>The paper: {entry['paper']}" if entry["paper"] else entry["says"]
    size = f"<br>{entry['networks']:,} networks, seeds: {entry['seeds']}" if "networks" in entry else ""
    differs = f"<br>*What differs:* {entry['differs']}" if entry["differs"] else ""
    link = f"[figures]({entry['page']}), " if "page" in entry else ""
    found = f"{entry['ours']}{differs}<br>{link}`{entry['command']}`"
    return f"| {says} | **{VERDICTS[entry['verdict']]}**{size} | {found} |"


if __name__ == "__main__":
    PAGE.write_text(written(claims()), encoding="utf-8")
