"""A proxy's card on the screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import fill, indent

from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from epochzero.cli.console import out, plain_table
from epochzero.evaluate.cards import Card, Demands
from epochzero.evaluate.cards.demands import COUNTS
from epochzero.evaluate.evidence import tables
from epochzero.stats.text import short

WIDEST = 100
COMMON = ("cifar10", "cifar100", "imagenet16")
"""targets with a column"""
NORMS = {"train": "with the batch's statistics", "eval": "with running statistics", "off": "removed"}
LAYERS = {
    "every layer": "every layer's output: conv, norm, activation, pool, linear, attention, skip, cut edge",
    "ReLU": "ReLU",
    "blocks": "blocks that give feature maps",
    "conv, linear": "weights of conv and linear layers",
    "all trainable": "everything trainable, norms and biases too",
    "own": "its own choice; see above",
}
SAID = {True: "yes", False: "no", None: "see above"}


def show_card(card: Card) -> None:
    """Prints one card, section by section."""
    out.print(Text.assemble((card.name, "bold"), "  ", (f"{card.better} is better", "dim")))
    _paragraph(card.summary)
    _paragraph(card.citation, style="dim")
    _heading("Formula")
    out.print(indent(card.formula, "  "))
    for paragraph in card.prose:
        out.print()
        _paragraph(paragraph)
    _heading("Options")
    if not card.options:
        _paragraph("none")
    _pairs([(f"{option.name} = {_written(option.value)}", option.meaning) for option in card.options])
    _heading("Needs")
    _pairs(list(_needs(card.needs)))
    _heading("Cost")
    _pairs(list(_cost(card)))
    _heading("Beware")
    for warning in card.beware:
        _paragraph(f"- {warning[:1].upper()}{warning[1:]}", hanging="  ")
    _heading("Rank correlation with accuracy")
    _show_correlations(card)


def _needs(needs: Demands) -> Iterator[tuple[str, str]]:
    yield "data", needs.data
    yield "labels", SAID[needs.labels]
    yield "backward passes", SAID[needs.backward]
    yield "per-sample gradients", SAID[needs.per_sample]
    yield "second derivatives", SAID[needs.second_derivatives]
    yield "weights", needs.weights
    if needs.norms:
        yield "batch norms", ", ".join(NORMS[norm] for norm in needs.norms.split(", "))
    yield "layers that count", "; ".join(LAYERS.get(kind, kind) for kind in needs.layers.split("; "))


def _cost(card: Card) -> Iterator[tuple[str, str]]:
    needs = card.needs
    if needs.forward_passes == "own":
        yield "passes", "runs its own; see above"
    else:
        units = {unit for term in needs.backward_passes.split(" + ") if (unit := term.lstrip("0123456789"))}
        legend = "".join(f" ({unit}: {COUNTS[unit]})" for unit in sorted(units))
        carried = "; that of the circle carries two derivatives along" if "circle" in needs.data else ""
        yield "passes", f"{needs.forward_passes} forward, {needs.backward_passes} backward{legend}{carried}"
    for row in card.costs:
        took = f"{row.milliseconds:,.0f} ms and {row.mebibytes:,.0f} MiB a network"
        yield "measured", f"{took} ({row.network}, batch {row.batch}; {row.machine}; {row.date})"
    if not card.costs:
        yield "measured", "not yet"
    for one in card.tf32:
        agrees = f"ranks {one.n} networks of {one.space} as in single precision to {one.spearman:g}"
        yield "TF32", f"{agrees} [{one.low:g}, {one.high:g}] ({one.machine}; {one.date})"


def _show_correlations(card: Card) -> None:
    if not (card.published or card.measured):
        known = [(one, key) for one in tables() for key in one.known if card.name in (key, key.partition(":")[0])]
        shown = plain_table("space", "accuracy", "networks", "Spearman")
        for one, key in known:
            rho = one.known[key]
            figures = f"{rho.spearman:.2f} [{rho.low:.2f}, {rho.high:.2f}]"
            shown.add_row(one.space, one.target, f"{one.networks:,}", figures)
        if known:
            out.print(Padding(shown, (0, 0, 0, 2)))
        else:
            _paragraph("None published in the papers, and none measured yet.")
        return
    by_source = _by_source(card)
    for proxy in dict.fromkeys(proxy for proxy, _, _ in by_source):
        if proxy != card.name:
            _paragraph(proxy)
        table = plain_table("space", "", *COMMON)
        last = ""
        for (_, space, source), values in ((key, by_source[key]) for key in by_source if key[0] == proxy):
            other = [f"{target} {value}" for target, value in values.items() if target not in COMMON]
            table.add_row(space if space != last else "", source, *(other or [values.get(name, "") for name in COMMON]))
            last = space
        out.print(Padding(table, (0, 0, 0, 2)))
    out.print()
    _paragraph("Spearman's rho, the papers' signed as ours; Kendall's tau: --json.", style="dim")
    if card.measured:
        where = dict.fromkeys(f"{row.machine}, seed {row.seed}, {row.date}" for row in card.measured)
        _paragraph(f"Ours is positive if the declared direction is right; 95 % intervals; {'; '.join(where)}.", "dim")


def _by_source(card: Card) -> dict[tuple[str, str, str], dict[str, str]]:
    """By proxy, space and source the correlation with each target, ours before the papers'."""
    by_source: dict[tuple[str, str, str], dict[str, str]] = {}
    for ours in card.measured:
        source = f"ours on {ours.data}, n {ours.n}/{ours.n + ours.unscored}"
        value = f"{short(ours.spearman)} [{short(ours.low)}, {short(ours.high)}]"
        by_source.setdefault((ours.proxy, ours.space, source), {})[ours.target.removesuffix("_test")] = value
    for theirs in card.published:
        if theirs.statistic == "spearman":
            value = short(theirs.value).removesuffix("0")
            by_source.setdefault((theirs.proxy, theirs.space, theirs.source), {})[theirs.target] = value
    return by_source


def _heading(text: str) -> None:
    out.print()
    out.print(Text(text, "bold cyan"))


def _paragraph(text: str, style: str = "", hanging: str = "") -> None:
    wrapped = fill(text, _width() - 2, subsequent_indent=hanging, break_on_hyphens=False)
    out.print(Text(indent(wrapped, "  "), style))


def _pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Prints names and texts in two columns."""
    grid = Table.grid(Column(no_wrap=True, style="dim"), Column(), padding=(0, 2))
    for pair in pairs:
        grid.add_row(*pair)
    out.print(Padding(grid, (0, 0, 0, 2)), width=_width(), soft_wrap=False)


def _width() -> int:
    return min(out.width, WIDEST)


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
