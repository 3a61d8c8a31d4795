"""Objectives of searches and benchmarks: one proxy, or several combined over a set of networks.

parse_objective("dextr")                      one proxy
parse_objective("rank(dextr,zico,flops)")     the sum of the logarithms of the ranks
parse_objective("table:cifar10_val_12ep")     a column of a table of known networks, higher is better
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from epochzero.engine.proxy import Proxy, parse, split_list
from epochzero.errors import UserError
from epochzero.objectives.ranks import METHODS, combined, harmonic
from epochzero.types import Score

TABLE, FEEDBACK = "table:", "feedback:"
"""prefixes of names that are not proxies: a column of a table, and a function of the user"""
COMBINED = re.compile(rf"\s*({'|'.join([*METHODS, 'harmonic'])})\s*\((.*)\)\s*", re.DOTALL)


@dataclass(frozen=True)
class Objective:
    """A proxy, or a combination of proxies, that ranks networks."""

    proxies: tuple[Proxy, ...]
    method: str = ""
    """way to combine them; empty for a single proxy"""

    @property
    def text(self) -> str:
        inside = ",".join(proxy.text for proxy in self.proxies)
        return f"{self.method}({inside})" if self.method else inside

    @property
    def of_a_set(self) -> bool:
        """True if a network's merit depends on the other networks in the comparison."""
        return self.method in METHODS

    def merits(self, scores: Sequence[Mapping[str, Score]]) -> list[float | None]:
        """Returns the merit of each network, higher is better, from its scores by proxy; None without a score."""
        rows = [[_merit(proxy, own[proxy.text]) for proxy in self.proxies] for own in scores]
        if not self.method:
            return [row[0] for row in rows]
        return harmonic(rows) if self.method == "harmonic" else combined(self.method, rows)

    def row(self, scores: Mapping[str, Score]) -> list[float]:
        """Returns one network's merit by each proxy, nan without a score."""
        merits = (_merit(proxy, scores[proxy.text]) for proxy in self.proxies)
        return [np.nan if merit is None else merit for merit in merits]

    def why_not(self, scores: Mapping[str, Score]) -> str:
        """Returns the reason why a network has no merit."""
        reasons = [f"{p.text}: {scores[p.text].why}" for p in self.proxies if not scores[p.text].ok]
        if not self.method and reasons:
            return scores[self.proxies[0].text].why
        return "; ".join(reasons) or "a score is not positive, and the harmonic mean needs it to be"


def _merit(proxy: Proxy, score: Score) -> float | None:
    return proxy.merit(score.value) if score.ok else None


def looked_up(name: str) -> Proxy:
    """Returns a value from a table or the user as if it were a proxy: higher is better, and nothing is run."""

    def compute(*_: object) -> NoReturn:
        raise UserError(f"{name} is looked up and not computed: use it in a search, with --table FILE.")

    return Proxy(name, compute, (), True, {})


def is_looked_up(proxy: Proxy) -> bool:
    return proxy.name.startswith((TABLE, FEEDBACK))


def _member(text: str) -> Proxy:
    column = text.strip().removeprefix(TABLE).strip()
    if not text.strip().startswith(TABLE):
        return parse(text)
    if not column:
        raise UserError(f"{text!r} names no column: write table:COLUMN, such as table:cifar10_val_12ep.")
    return looked_up(f"{TABLE}{column}")


def parse_objective(text: str, member: Callable[[str], Proxy] = _member) -> Objective:
    """Returns the objective of a proxy, a column of a table, or `method(proxy,proxy,...)`.

    `member` makes a proxy from its text.
    """
    match = COMBINED.fullmatch(text)
    if match is None:
        return Objective((member(text),))
    proxies = tuple(map(member, split_list(match[2])))
    if len(proxies) < 2 or len({proxy.text for proxy in proxies}) < len(proxies):
        raise UserError(f"{text!r} should combine at least two different proxies.")
    return Objective(proxies, match[1])


def parse_objectives(text: str) -> list[Objective]:
    """Returns the different objectives in a list, separated by commas outside parentheses."""
    objectives = [parse_objective(piece) for piece in split_list(text)]
    if not objectives:
        raise UserError("No proxy is named: give one or more, separated by commas; `epochzero list proxies`.")
    return list({objective.text: objective for objective in objectives}.values())


def members(objectives: Sequence[Objective]) -> list[Proxy]:
    """Returns every proxy that these objectives need, once."""
    return list({proxy.text: proxy for objective in objectives for proxy in objective.proxies}.values())


def single(objectives: Sequence[Objective]) -> list[Proxy]:
    """Returns the proxies of objectives that are defined for a single network; UserError for any other."""
    for objective in objectives:
        if any(map(is_looked_up, objective.proxies)):
            raise UserError(f"{objective.text} is looked up in a table: use it in search, with --table FILE.")
        if objective.method:
            raise UserError(
                f"{objective.text} compares networks and is not defined for a single one: "
                "use it in search or bench, or score its proxies."
            )
    return members(objectives)
