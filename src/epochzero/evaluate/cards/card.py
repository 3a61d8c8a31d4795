"""A proxy's card: its definition, needs, cost, known failures and correlations."""

from __future__ import annotations

from dataclasses import dataclass, replace

from epochzero.engine import Proxy
from epochzero.engine.proxy import Value
from epochzero.errors import UserError
from epochzero.evaluate.cards.demands import Demands, demands
from epochzero.evaluate.cards.explanation import explain
from epochzero.evaluate.cards.figures import (
    Cost,
    Measured,
    Precision,
    Published,
    costs,
    measured,
    precisions,
    proxy_of,
    published,
)
from epochzero.objectives.objective import Objective


@dataclass(frozen=True)
class Option:
    """One setting of a proxy."""

    name: str
    value: Value
    """the default, unless the card is of a proxy with settings"""
    meaning: str


@dataclass(frozen=True)
class Card:
    """All facts about a proxy."""

    name: str
    """with settings that are not the defaults"""
    summary: str
    paper: str
    """`Asthana 2025`"""
    citation: str
    better: str
    """higher or lower"""
    formula: str
    prose: tuple[str, ...]
    options: tuple[Option, ...]
    needs: Demands
    beware: tuple[str, ...]
    costs: tuple[Cost, ...]
    published: tuple[Published, ...]
    measured: tuple[Measured, ...]
    tf32: tuple[Precision, ...]


def card(proxy: Proxy) -> Card:
    """The card of a proxy; the correlations are those of the proxy of that name with any settings."""
    said = explain(proxy.explanation, proxy.name)
    return Card(
        name=proxy.text,
        summary=proxy.summary,
        paper=said.paper,
        citation=said.citation,
        better="higher" if proxy.higher_is_better else "lower",
        formula=said.formula,
        prose=said.prose,
        options=tuple(Option(key, value, said.options.get(key, "")) for key, value in proxy.resolved.items()),
        needs=demands(proxy),
        beware=said.beware,
        costs=tuple(row for row in costs() if row.proxy == proxy.text),
        published=tuple(row for row in published() if proxy_of(row.proxy) == proxy.name),
        measured=tuple(row for row in measured() if proxy_of(row.proxy) == proxy.name),
        tf32=tuple(row for row in precisions() if row.proxy == proxy.text),
    )


def card_of(objective: Objective) -> Card:
    """The card of a proxy, or of `auto` with what it is made of."""
    if objective.method and not objective.made_of:
        raise UserError(f"{objective.text} has no card: ask for those of its proxies.")
    if objective.made_of is None:
        return card(objective.proxies[0])
    own = card(objective.as_proxy)
    return replace(own, prose=(f"{objective.text} is {objective.about}.", *own.prose))
