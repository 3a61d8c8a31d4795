"""The ranking of a run's networks.

A search ranks by its objective, or by several goals. Any other run is ranked by known accuracies; without any, networks
stay in the order of evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from epochzero.engine.proxy import parse, split_list
from epochzero.errors import UserError
from epochzero.objectives.goals import parse_goals
from epochzero.objectives.objective import Objective, parse_objective
from epochzero.report.candidates import Candidates, Column
from epochzero.stats.bootstrap import Floats
from epochzero.stats.groups import grouped, least_difference
from epochzero.store import JSON, Run
from epochzero.study.methods.dominance import first_front
from epochzero.types import Shape


@dataclass
class Judgement:
    """The ranking of the networks, best first; with several goals the front first, by the first goal."""

    by: str = ""
    """the name of the column to rank by, or empty"""
    curves: list[str] = field(default_factory=list)
    """columns whose best so far is drawn as a search's progress"""
    order: list[int] = field(default_factory=list)
    """networks with a score"""
    ranked: bool = False
    """true if the first network is the best in some way"""
    front: list[int] = field(default_factory=list)
    """the front of a search with several goals"""
    members: list[int] = field(default_factory=list)
    """members of the ensemble that the run built"""
    searched: bool = False
    draws: Draws | None = None
    """of a ranking, which scored each network in several draws of weights and data"""


@dataclass
class Draws:
    """Spread and groups of networks over draws, as `epochzero rank` prints them."""

    count: int
    spreads: Floats
    """[networks], the standard deviation over the draws"""
    groups: list[int | None]
    """those of a group do not differ significantly from its first; None without a score"""
    least: float
    """the least significant difference of two means"""

    @property
    def first(self) -> list[int]:
        """The networks of the first group."""
        return [at for at, group in enumerate(self.groups) if group == 1]


def judged(run: Run, candidates: Candidates, shape: Shape = ()) -> Judgement:
    """Ranks the networks, whose inputs have this shape; a combination of proxies becomes a column."""
    text = run.settings.get("proxy")
    judgement = Judgement(searched=isinstance(text, str))
    if isinstance(text, str):
        _by_objective(judgement, text, candidates, str(run.settings.get("space")), shape)
    if run.kind == "rank" and judgement.by:
        judgement.draws = _averaged(candidates.columns[judgement.by])
    if not judgement.by:
        named = candidates.of_kind("truth")
        named += candidates.of_kind("score", "cost") if judgement.searched else []
        judgement.by = named[0].name if named else ""
    if judgement.by:
        judgement.order = _order(candidates.columns[judgement.by].merits)
    elif candidates.columns:
        known = [~np.isnan(column.values) for column in candidates.columns.values()]
        judgement.order = np.flatnonzero(np.any(known, axis=0)).tolist()
    if judgement.front:
        ahead = set(judgement.front)
        judgement.order.sort(key=lambda at: at not in ahead)
    result = run.result or {}
    members = result.get("members")
    judgement.members = _places(members if isinstance(members, Sequence) else (), candidates)
    chosen = judgement.members or _places([result.get("best")], candidates)
    judgement.ranked = bool(judgement.by or chosen)
    judgement.order = list(dict.fromkeys([*chosen, *judgement.order]))
    return judgement


def _places(named: Sequence[JSON], candidates: Candidates) -> list[int]:
    """Indices of the named networks among the candidates."""
    place = {arch: at for at, arch in enumerate(candidates.archs)}
    return [place[name] for name in named if isinstance(name, str) and name in place]


def _by_objective(judgement: Judgement, text: str, candidates: Candidates, space: str, shape: Shape) -> None:
    """Ranks by a search's objective, unless one of its proxies is unknown, such as that of a plug-in."""
    columns = candidates.columns
    if len(split_list(text)) > 1:
        try:
            goals = parse_goals(text).calibrated(space, shape).goals
        except UserError:
            return
        for goal in goals:
            if goal.auto:
                _add_combined(candidates, goal.auto)
        wanted = [goal for goal in goals if goal.proxy.text in columns]
        for goal in wanted:
            columns[goal.proxy.text].higher = goal.higher
        judgement.curves = [goal.proxy.text for goal in wanted]
        if len(wanted) == len(goals):
            merits = np.stack([columns[name].merits for name in judgement.curves], axis=1)
            whole = np.flatnonzero(~np.isnan(merits).any(axis=1))
            judgement.front = whole[first_front(merits[whole])].tolist()
    elif text in columns:
        judgement.curves = [text]
        with suppress(UserError):  # a table's column is not a proxy
            columns[text].higher = parse(text).higher_is_better  # also for parameters, otherwise a cost
    else:
        try:
            objective = parse_objective(text)
        except UserError:
            return
        if objective.method and _add_combined(candidates, objective):
            judgement.curves = [objective.text]
    judgement.by = judgement.curves[0] if judgement.curves else ""


def _add_combined(candidates: Candidates, objective: Objective) -> bool:
    """Adds the column of a combination; False if one of its scores is missing altogether."""
    columns = candidates.columns
    if any(proxy.text not in columns for proxy in objective.proxies):
        return False
    repeats = min(len(columns[proxy.text].repeats) for proxy in objective.proxies)
    members = [map(p.merit, columns[p.text].repeats[:repeats].ravel().tolist()) for p in objective.proxies]
    rows = [[None if np.isnan(x) else x for x in row] for row in zip(*members, strict=True)]
    values = np.array([np.nan if merit is None else merit for merit in objective.of_rows(rows)])  # [repeats * networks]
    candidates.add(objective.text, "score", True, values.reshape(repeats, -1))
    return True


def _averaged(column: Column) -> Draws | None:
    """Lets a column show the mean over its draws; spread and groups, if there are several draws."""
    draws = column.repeats
    if len(draws) < 2:
        return None
    column.averaged = True
    order = _order(column.merits)
    values = (draws if column.higher else -draws).T[order]  # [networks, draws]
    least = least_difference(values) if len(order) else np.nan
    groups: list[int | None] = [None] * draws.shape[1]
    if not np.isnan(least):
        for at, group in zip(order, grouped(values.mean(1), least), strict=True):
            groups[at] = group
    return Draws(len(draws), draws.std(axis=0, ddof=1), groups, least)


def _order(merits: Floats) -> list[int]:
    """Indices of networks with a merit, best first; ties in the order of evaluation."""
    order = np.lexsort((np.arange(len(merits)), -np.nan_to_num(merits, nan=-np.inf)))
    return [int(at) for at in order if not np.isnan(merits[at])]
