"""A page for each space: its counts, a drawing and an example."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from random import Random
from typing import Any

import pages
from pages import cell, docstring, escaped, fenced, joined, table, within

from epochzero.evaluate.evidence import tables as evidence
from epochzero.plan.drawing.draw import svg
from epochzero.registry import spaces
from epochzero.spaces.base import GivesPlans


def all_spaces() -> str:
    """The table that `epochzero list spaces` shows, each with a link to its page."""
    rows = pages.listed("spaces")
    head = ["name", "networks", "input", "classes", "about"]
    lines = (
        [f"[{escaped(row['name'])}](../spaces/{row['name']}.md)", *(cell(count(row[column])) for column in head[1:])]
        for row in rows
    )
    return joined([table(head, lines), within("../spaces/*")])


def count(text: object) -> str:
    """Large numbers as powers of ten."""
    digits = str(text).replace(",", "")
    short = f"about {digits[:1]}.{digits[1:2]} x 10^{len(digits) - 1}"
    return short if digits.isdigit() and len(digits) > 12 else str(text)


def space_files(name: str) -> Iterator[tuple[str, str]]:
    """The page of a space and its drawing."""
    space: Any = spaces[name]
    (row,) = (row for row in pages.listed("spaces") if row["name"] == name)
    networks = count(row["networks"]) or "as many as there are models"
    parts = [
        f"# {escaped(name)}",
        f"{escaped(row['about'])}.",
        table(["networks", "input", "classes"], [[cell(networks), cell(row["input"]), cell(row["classes"])]]),
    ]
    if isinstance(space, GivesPlans):
        small, random = space.smallest(), space.sample(Random(0))
        plans = {"smallest": space.plan(small), "random": space.plan(random)}
        yield f"spaces/{name}.svg", svg(plans["random"], space.cell_block)
        what = "Cells" if isinstance(space.cell_block, tuple) else "Cell" if space.cell_block else "Network"
        sizes = ([kind, f"{plan.params:,}", f"{plan.flops:,}"] for kind, plan in plans.items())
        parts += [
            "## Two of its networks",
            table(["", "parameters", "multiply-accumulates"], sizes),
            f"Their texts, and the {what.lower()} of the second:",
            fenced(f"{space.text(small)}\n{space.text(random)}", "sh"),
            f"![{what} of a random network of {name}]({name}.svg)",
        ]
    parts += ["## Example", fenced(example(name, space), "sh")]
    if measured := sorted(f"`{board.name}`" for board in evidence() if board.space == name):
        parts += ["## Accuracies", f"On the [leaderboard](../leaderboard.md): {', '.join(measured)}."]
    if text := (inspect.getmodule(type(space)).__doc__ or "").strip():
        parts += ["## About", *docstring(text)]
    yield f"spaces/{name}.md", joined(parts)


def example(name: str, space: object) -> str:
    """Commands for this space."""
    if name == "published":
        return "epochzero score --module timm:resnet18 --proxy naswot"
    if name.startswith("nasrec"):
        return f"epochzero recommend search --space {name} --data synthetic:20000 --preset reduced --out found"
    return f"epochzero search --space {name} --budget 100 --max-params {limit(space)} --store run.db --out winner"


def limit(space: Any) -> str:
    """A limit on parameters that a random network of the space just meets."""
    return f"{-(-space.plan(space.sample(Random(0))).params // 10_000) * 10}k"
