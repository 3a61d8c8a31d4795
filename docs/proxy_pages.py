"""A page for each proxy, from its card, its formula and its row of the leaderboard."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from leaderboard_pages import standings
from pages import cell, code, escaped, fenced, joined, table, within

from epochzero.evaluate.cards import Card, card, card_of
from epochzero.evaluate.cards.demands import COUNTS
from epochzero.evaluate.evidence import tables as evidence
from epochzero.objectives.auto import NAME, NEWEST
from epochzero.objectives.objective import parse_objective
from epochzero.registry import proxies

DOCS = Path(__file__).parent
AUTO = f"auto:{NEWEST}"


def proxy_files() -> Iterator[tuple[str, str]]:
    for one in all_cards():
        yield f"proxies/{file_of(one.name)}.md", proxy_page(one)


def all_cards() -> list[Card]:
    return [card_of(parse_objective(NAME)), *map(card, proxies.values())]


def file_of(name: str) -> str:
    """`auto` for `auto:3`."""
    return name.partition(":")[0]


def proxy_page(one: Card) -> str:
    options = ([code(option.name), code(_written(option.value)), cell(option.meaning)] for option in one.options)
    return joined(
        [
            f"# {escaped(one.name)}",
            f"{escaped(one.summary)} **{one.better.capitalize()} is better.**",
            formula(file_of(one.name)),
            fenced(one.formula),
            *map(escaped, one.prose),
            "## Use it",
            _use(one),
            *(["## Options", table(["option", "default", "meaning"], options)] if one.options else []),
            "## Weaknesses",
            "\n".join(f"- {escaped(warning[:1].upper() + warning[1:])}" for warning in one.beware),
            "## Where it works",
            where_it_works(one.name),
            *_measured(one),
            "## What it takes",
            *([] if one.name == AUTO else [_needs(one)]),
            *_costs(one),
            "## Paper",
            escaped(one.citation),
        ]
    )


def formula(name: str) -> str:
    """The formula as MathML, which browsers draw; nothing if there is none in formulas.toml."""
    lines = formulas().get(name, "").strip().splitlines()
    return (
        "\n".join(["<div class='formula'>", *(convert(rf"\displaystyle {line}", "block") for line in lines), "</div>"])
        if lines
        else ""
    )


@cache
def formulas() -> dict[str, str]:
    return tomllib.loads((DOCS / "formulas.toml").read_text(encoding="utf-8"))


def _use(one: Card) -> str:
    name, space = file_of(one.name), "autoformer_tiny" if "transformers" in one.summary else "nb201"
    commands = [
        f"epochzero list proxies --card {name}",
        f"epochzero search --space {space} --proxy {name} --budget 300",
    ]
    return joined(
        [
            fenced("\n".join(commands)),
            f'In Python: `ez.score(net, "{name}")` for one network, `ez.rank(models, proxy="{name}")` for several.',
        ]
    )


def where_it_works(name: str) -> str:
    """The row of the leaderboard, as a sentence and as a picture."""
    known = {board.name: (board.known[name], board.known.get("flops")) for board in evidence() if name in board.known}
    standing = standings().get(name)
    if not known or standing is None:
        return "It is not on the [leaderboard](../leaderboard.md): it was not scored on the tables there."
    rows = [(board, *told) for board, told in known.items()]
    tables = f"all {len(rows)} tables" if standing.tables == "all" else f"{len(rows)} tables that it was scored on"
    flops = standings()["flops"].mean.partition(" ")[0]
    said = (
        f"A mean Spearman correlation of **{standing.mean}** with the accuracies of trained networks, over {tables} of "
        f"the [leaderboard](../leaderboard.md). The worst: {standing.worst}."
    )
    if standing.tables == "all":
        said += f" Counting multiply-accumulates has {flops}. Place {standing.place} of {standing.of} there."
    return joined([said, dots(f"Spearman correlations of {name} and of FLOPs by table", rows)])


def dots(title: str, rows: list[tuple[str, Any, Any]]) -> str:
    """A picture of correlations with their intervals: filled dots; rings are those of FLOPs."""
    left, right, step = 165, 435, 22
    bottom = step * len(rows) + 10

    def at(value: float) -> str:
        return f"{left + (value + 1) / 2 * (right - left):.1f}"

    def dot(look: str, value: float, y: int, told: str) -> str:
        return f'<circle class="{look}" cx="{at(value)}" cy="{y}" r="4"><title>{escape(told)}</title></circle>'

    parts = [f'<svg class="dots" viewBox="0 0 450 {bottom + 30}" role="img" aria-label="{escape(title)}">']
    for tick in (-1, -0.5, 0, 0.5, 1):
        look, x = "tick" if tick else "zero", at(tick)
        parts.append(f'<line class="{look}" x1="{x}" x2="{x}" y1="6" y2="{bottom}"/>')
        parts.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{tick:g}</text>')
    for place, (board, ours, flops) in enumerate(rows):
        y = step * place + 18
        parts.append(f'<text x="{left - 12}" y="{y + 4}" text-anchor="end">{escape(short(board))}</text>')
        if flops:
            parts.append(dot("flops", flops.spearman, y, f"FLOPs: {flops.spearman:.2f}"))
        parts.append(f'<line class="interval" x1="{at(ours.low)}" x2="{at(ours.high)}" y1="{y}" y2="{y}"/>')
        parts.append(dot("ours", ours.spearman, y, f"{ours.spearman:.2f} [{ours.low:.2f}, {ours.high:.2f}]"))
    caption = "Filled: this score, with its 95 % interval. Rings: counting FLOPs. Right of 0 the order is right."
    return f"<figure>{''.join(parts)}</svg><figcaption>{caption}</figcaption></figure>"


def short(board: str) -> str:
    """A table's name for the picture."""
    return re.sub(r" class_scene_val_acc|_test|_tiny|_val_acc|_108ep|_micro|imagenet_(?=su)", "", board).replace(
        "_", " "
    )


def _needs(one: Card) -> str:
    needs = one.needs
    units = "; ".join(f"{unit}: {meaning}" for unit, meaning in COUNTS.items())
    rows = [
        ["data", needs.data],
        ["labels", "needed" if needs.labels else "not needed"],
        ["forward passes", needs.forward_passes],
        ["backward passes", f"{needs.backward_passes}"],
        ["layers", needs.layers],
        ["weights", needs.weights],
        ["batch norms", needs.norms or "none run"],
    ]
    return joined(
        [table(["needs", ""], ([name, cell(value)] for name, value in rows)), f"({units}; own: passes of its own.)"]
    )


def _measured(one: Card) -> Iterator[str]:
    """Returns the measured and the published figures."""
    ours = (
        [
            code(row.proxy),
            cell(row.space),
            cell(row.data),
            cell(row.target),
            f"{row.n} ({row.unscored})",
            f"{row.spearman:.3f}\N{NO-BREAK SPACE}[{row.low:.3f},\N{NO-BREAK SPACE}{row.high:.3f}]",
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


def _costs(one: Card) -> Iterator[str]:
    costs = [
        f"- {row.milliseconds:,.0f} ms and {row.mebibytes:,.0f} MiB a network ({row.network}, batch {row.batch}; "
        f"{row.machine}; {row.date})"
        for row in one.costs
    ]
    yield "\n".join(map(escaped, costs)) or "Its cost alone was not measured."
    for row in one.tf32:
        yield escaped(
            f"With TF32 it ranks {row.n} networks of {row.space} as in single precision to {row.spearman:g} "
            f"[{row.low:g}, {row.high:g}] ({row.machine}; {row.date})."
        )


def _written(value: object) -> str:
    """As a setting is written on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def all_proxies() -> str:
    """A table of all, each with a link to its page."""
    rows = []
    for one in all_cards():
        standing = standings().get(one.name)
        network = next((row for row in one.costs if row.network.startswith("nb201")), None)
        rows.append(
            [
                f"[{escaped(one.name)}](proxies/{file_of(one.name)}.md)",
                cell(one.summary),
                one.better,
                "needed" if one.needs.labels else "",
                one.needs.backward_passes if one.name != AUTO else "",
                f"{network.milliseconds:,.0f}" if network else "",
                standing.mean.partition(" ")[0] + ("" if standing.tables == "all" else "\\*") if standing else "",
            ]
        )
    head = ["proxy", "what it is", "better", "labels", "backward passes", "ms", "mean"]
    units = "; ".join(f"{unit}: {meaning}" for unit, meaning in COUNTS.items())
    legend = (
        f"Backward passes at default settings ({units}; own: see its page). ms: one network of NAS-Bench-201 with a "
        "batch of 64, two cores. mean: Spearman correlation over the tables of the [leaderboard](leaderboard.md), "
        "\\* over some of them only."
    )
    return joined([table(head, rows), legend, within("proxies/*")])
