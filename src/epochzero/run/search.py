"""The loop of a search: ask, score, store, tell. Killed at any moment, it resumes from the store."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from epochzero.combine.objective import Objective
from epochzero.errors import UnknownNameError, UserError
from epochzero.plan import Plan
from epochzero.registry import near_miss, searches
from epochzero.run.network import budgeted
from epochzero.run.task import Task
from epochzero.searches.base import Search
from epochzero.spaces.base import GivesPlans
from epochzero.spaces.budget import Budget
from epochzero.store import JSON, Store, manifest
from epochzero.types import Score


@dataclass(frozen=True)
class Candidate:
    """A network that was looked at."""

    arch: Any
    text: str
    score: Score


@dataclass
class Outcome:
    """What a search found."""

    task: Task
    objective: Objective
    best: Candidate | None = None
    """None while no network has a score"""
    evaluated: int = 0
    unscored: dict[str, int] = field(default_factory=dict)
    """how many networks have no score, by reason"""
    seconds: float = 0.0
    scoring_seconds: float = 0.0
    run: str = ""
    _merit: float = -math.inf

    @property
    def winner(self) -> Candidate:
        if self.best is None:
            raise UserError("The search found no network with a score.")
        return self.best

    @property
    def plan(self) -> Plan:
        """The best network as data; a space of modules has `module` alone."""
        space, batch, best = self.task.space, self.task.batch, self.winner
        if not isinstance(space, GivesPlans):
            raise UserError(f"The space '{space.name}' gives modules and no plans: use module().")
        return space.plan(best.arch, batch.num_classes, batch.input_shape)

    def module(self) -> nn.Module:
        """The best network, ready to train, with the weights that it was scored with."""
        return self.task.module(self.winner.arch)

    def count(self, scores: Sequence[Mapping[str, Score]], merits: Sequence[float | None]) -> None:
        """Count networks, and the reasons of those that have no merit."""
        self.evaluated += len(scores)
        for found, merit in zip(scores, merits, strict=True):
            if merit is None:
                why = self.objective.why_not(found)
                self.unscored[why] = self.unscored.get(why, 0) + 1

    def choose(
        self, archs: Sequence[Any], scores: Sequence[Mapping[str, Score]], merits: Sequence[float | None]
    ) -> None:
        """Keep the best of these, and of those before unless ranks changed; the first of equals stays."""
        proxies = self.objective.proxies
        if self.objective.of_a_set:
            self.best, self._merit = None, -math.inf
        for arch, found, merit in zip(archs, scores, merits, strict=True):
            if merit is not None and merit > self._merit:
                score = Score(merit) if self.objective.method else found[proxies[0].text]
                self.best, self._merit = Candidate(arch, self.task.space.text(arch), score), merit


Progress = Callable[[Outcome], None]


def defaults_of(method: str) -> dict[str, Any]:
    """The options of a search, with their defaults."""
    signature = inspect.signature(searches[method]).parameters.values()
    return {p.name: p.default for p in signature if p.kind is p.KEYWORD_ONLY}


def make_search(method: str, task: Task, budget: Budget, seed: int, options: Mapping[str, Any]) -> Search:
    """The search of that name, on the part of the space that fits the budget."""
    maker = searches[method]
    space = budgeted(task.space, budget, task.batch)
    known = defaults_of(method)
    for option, value in options.items():
        if option not in known:
            hint = near_miss(option, list(known))
            raise UnknownNameError(f"The search {method} has no option '{option}'.{hint} It has {', '.join(known)}.")
        kind = type(known[option])
        if not isinstance(value, (int, float) if kind is float else kind):
            raise UserError(
                f"The search {method} takes {kind.__name__} for '{option}' (default {known[option]}), not {value!r}."
            )
    found: Search = maker(space, seed, **options)
    return found


def run_search(
    task: Task,
    method: str = "evolution",
    evaluations: int = 100,
    *,
    seed: int = 0,
    objective: Objective | None = None,
    budget: Budget = Budget(),
    options: Mapping[str, Any] | None = None,
    store: Store,
    progress: Progress | None = None,
) -> Outcome:
    """Search until so many networks are evaluated, or none is left, by the task's proxy or by an objective."""
    if evaluations < 1:
        raise UserError(f"A search needs a budget of at least 1 evaluation, not {evaluations}.")
    start = time.perf_counter()
    objective = objective or Objective(tuple(task.proxies))
    search = make_search(method, task, budget, seed, options or {})
    settings: dict[str, JSON] = {
        "space": task.space.name,
        "proxy": objective.text,
        "method": method,
        "options": dict(options or {}),
        "budget": evaluations,
        "seed": seed,
        "max_params": budget.max_params,
        "max_flops": budget.max_flops,
        "batch": task.batch.id,
        "origin": str(task.origin),
    }
    about: dict[str, JSON] = {
        "data": task.batch.about,
        "device": task.device,
        "executor": task.executor.about(),
        "resolved": {
            "proxy": {p.text: dict(p.resolved) for p in objective.proxies},
            "method": defaults_of(method) | dict(options or {}),
        },
    }
    run = store.begin_run("search", settings, manifest(settings | about))
    outcome = Outcome(task, objective, run=run.id)
    past: tuple[list[Any], list[dict[str, Score]]] = [], []
    if progress is not None:
        progress(outcome)
    while outcome.evaluated < evaluations:
        archs = search.ask(min(search.batch, evaluations - outcome.evaluated))
        if not archs:
            break
        scores, seconds = task.evaluate(archs, store, run, outcome.evaluated)
        merits = objective.merits(scores)
        outcome.count(scores, merits)
        if objective.of_a_set:
            past[0].extend(archs)
            past[1].extend(scores)
            archs, scores = past
            merits = objective.merits(scores)
        search.tell(archs, merits)
        outcome.choose(archs, scores, merits)
        outcome.scoring_seconds += seconds
        outcome.seconds = time.perf_counter() - start
        if progress is not None:
            progress(outcome)
    best = outcome.best
    run.finish(
        {
            "best": None if best is None else best.text,
            "value": None if best is None else best.score.value,
            "evaluated": outcome.evaluated,
            "unscored": outcome.unscored,
        }
    )
    return outcome
