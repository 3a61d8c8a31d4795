"""Objectives of searches and benchmarks: one proxy, or several combined over a set of networks.

parse_objective("dextr")                      one proxy
parse_objective("rank(dextr,zico,flops)")     the sum of the logarithms of the ranks
parse_objective("auto")                       the combination that evidence has chosen, in its newest version
parse_objective("table:cifar10_val_12ep")     a column of a table of known networks, higher is better
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

import numpy as np

from epochzero.engine.proxy import Proxy, parse, split_list
from epochzero.errors import UserError
from epochzero.objectives import auto
from epochzero.objectives.auto import NAME, VERSIONS, Version, version_named
from epochzero.objectives.ranks import METHODS, Ranking, as_merits, as_rows, combined_rows, harmonic
from epochzero.objectives.reference import Reference, reference_of
from epochzero.types import Score, Shape

TABLE, FEEDBACK = "table:", "feedback:"
"""prefixes of names that are not proxies: a column of a table, and a function of the user"""
COMBINED = re.compile(rf"\s*({'|'.join([*METHODS, 'harmonic'])})\s*\((.*)\)\s*", re.DOTALL)


@dataclass(frozen=True)
class Objective:
    """A proxy, or a combination of proxies, that ranks networks."""

    proxies: tuple[Proxy, ...]
    method: str = ""
    """way to combine them; empty for a single proxy"""
    version: int | None = None
    """of `auto`"""
    reference: Reference | None = field(default=None, repr=False, compare=False)
    """networks that each network is compared with, in place of the others of its set"""

    @property
    def text(self) -> str:
        if self.made_of:
            return f"{NAME}:{self.version}"
        inside = ",".join(proxy.text for proxy in self.proxies)
        return f"{self.method}({inside})" if self.method else inside

    @property
    def made_of(self) -> Version | None:
        """The version of `auto` that this is, if it is one."""
        return None if self.version is None else VERSIONS[self.version]

    @property
    def as_proxy(self) -> Proxy:
        """The name and the needs of `auto` as those of one proxy, for tables and cards."""
        return Proxy(self.text, auto.compute, [need for one in self.proxies for need in one.needs], True, {})

    @property
    def about(self) -> str:
        """The members of `auto`, and the networks that it compares with."""
        parts = (self.made_of and self.made_of.text, self.reference and self.reference.about)
        return "; ".join(part for part in parts if part)

    @property
    def of_a_set(self) -> bool:
        """True if a network's merit depends on the other networks in the comparison."""
        return self.method in METHODS and self.reference is None

    def calibrated(self, space: str, shape: Shape, of_size: bool = False) -> Objective:
        """Returns `auto` with a merit for each network alone, and any other objective as it is."""
        version = self.made_of
        return self if version is None else replace(self, reference=reference_of(version, space, shape, of_size))

    def ranking(self) -> Ranking:
        """Returns an empty set of networks to rank."""
        return self.made_of.ranking() if self.made_of else Ranking(self.method, len(self.proxies))

    def merits(self, scores: Sequence[Mapping[str, Score]]) -> list[float | None]:
        """Returns the merit of each network, higher is better, from its scores by proxy; None without a score."""
        return self.of_rows([[_merit(proxy, own[proxy.text]) for proxy in self.proxies] for own in scores])

    def of_rows(self, rows: Sequence[Sequence[float | None]]) -> list[float | None]:
        """Returns the merit of each network from the merits of its proxies."""
        if not self.method:
            return [row[0] for row in rows]
        if self.method == "harmonic" or not rows:
            return harmonic(rows)
        if self.reference is not None:
            return as_merits(np.array([self.reference.percentile(row) for row in as_rows(rows)]))
        return as_merits(combined_rows(self.ranking(), as_rows(rows)))

    def given_way(self, rows: Sequence[Sequence[float | None]]) -> list[str]:
        """Returns a sentence for each member of `auto` that does not apply to these networks."""
        said: list[str] = []
        if self.made_of is None or self.reference is not None or len(rows) < 2:
            return said
        values, ranking = as_rows(rows), self.ranking()
        ranking.add(values)
        values = values[~np.isnan(values).all(axis=1)]  # a network without any score says nothing about a member
        if len(values) < 2:
            return said
        for term, chosen in zip(ranking.terms, ranking.chosen, strict=True):
            first, other = (self.proxies[k].text for k in (term.columns[0], chosen))
            without = float(np.isnan(values[:, term.columns[0]]).mean())
            why = f"{without:.0%} of the networks lack it" if without else "it is the same for all networks"
            if first != other:
                said.append(f"{self.text} counts {other} in place of {first}: {why}.")
        return said

    def percentile(self, scores: Mapping[str, Score]) -> Score:
        """Returns one network's value among the reference networks, or why it has none."""
        row = np.array(self.row(scores))
        value = np.nan if self.reference is None else self.reference.percentile(row)
        if self.reference is None or np.isnan(value):
            return Score.degenerate(self.why_not(scores))
        return Score(value, why=self.reference.meaning(row))

    def row(self, scores: Mapping[str, Score]) -> list[float]:
        """Returns one network's merit by each proxy, nan without a score."""
        merits = (_merit(proxy, scores[proxy.text]) for proxy in self.proxies)
        return [np.nan if merit is None else merit for merit in merits]

    def why_not(self, scores: Mapping[str, Score]) -> str:
        """Returns the reason why a network has no merit."""
        reasons = [f"{p.text}: {scores[p.text].why}" for p in self.proxies if not scores[p.text].ok]
        if not self.method and reasons:
            return scores[self.proxies[0].text].why
        not_positive = "a score is not positive, and the harmonic mean needs it to be"
        return "; ".join(reasons) or (not_positive if self.method == "harmonic" else "")


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
    """Returns the objective of a proxy, a column of a table, `auto`, or `method(proxy,proxy,...)`.

    `member` makes a proxy from its text.
    """
    version = version_named(text)
    if version is not None:
        return Objective(tuple(map(member, VERSIONS[version].scores)), VERSIONS[version].method, version)
    match = COMBINED.fullmatch(text)
    if match is None:
        return Objective((member(text),))
    if inner := [text for text in split_list(match[2]) if version_named(text)]:
        raise UserError(f"{inner[0]} is a combination already: use it alone, without {match[1]}(...).")
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
        if objective.method and not objective.made_of:
            raise UserError(
                f"{objective.text} compares networks and is not defined for a single one: "
                "use it in search or bench, or score its proxies."
            )
    return members(objectives)


def percentiles(asked: str, scores: Mapping[str, Score], space: str, shape: Shape) -> dict[str, Score]:
    """Returns one network's scores, after its value, from 0 to 100, by each `auto` that is asked for, under its name.

    The `why` of the value says among which networks it is a percentile.
    """
    own = {text: parse_objective(text).calibrated(space, shape, of_size=True) for text in split_list(asked)}
    return {**{text: one.percentile(scores) for text, one in own.items() if one.reference}, **scores}
