"""The loop of a search: ask, score, store, tell. Killed at any moment, it resumes from the store."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from epochzero.engine import Proxy
from epochzero.errors import UnknownNameError, UserError
from epochzero.plan import Plan
from epochzero.registry import near_miss, searches
from epochzero.run.task import Task
from epochzero.searches.base import Search
from epochzero.spaces.budget import Budget, BudgetedSpace
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
    proxy: Proxy
    best: Candidate | None = None
    """None while no network has a score"""
    evaluated: int = 0
    unscored: dict[str, int] = field(default_factory=dict)
    """how many networks have no score, by reason"""
    seconds: float = 0.0
    scoring_seconds: float = 0.0
    run: str = ""

    @property
    def plan(self) -> Plan:
        if self.best is None:
            raise UserError("The search found no network with a score.")
        return self.task.plan(self.best.arch)

    def look(self, arch: Any, text: str, score: Score) -> None:
        """Count a network, and keep it if it is the best so far. The first of equals stays."""
        self.evaluated += 1
        if not score.ok:
            self.unscored[score.why] = self.unscored.get(score.why, 0) + 1
        elif self.best is None or self.proxy.merit(score.value) > self.proxy.merit(self.best.score.value):
            self.best = Candidate(arch, text, score)


Progress = Callable[[Outcome], None]


def make_search(method: str, task: Task, budget: Budget, seed: int, options: Mapping[str, Any]) -> Search:
    """The search of that name, on the part of the space that fits the budget."""
    maker = searches[method]
    space = BudgetedSpace(task.space, budget, task.batch.num_classes, task.batch.input_shape)
    known = {p.name: p.default for p in inspect.signature(maker).parameters.values() if p.kind is p.KEYWORD_ONLY}
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
    budget: Budget = Budget(),
    options: Mapping[str, Any] | None = None,
    store: Store,
    progress: Progress | None = None,
) -> Outcome:
    """Search until so many networks are evaluated, or none is left; `task` holds the one proxy to go by."""
    if evaluations < 1:
        raise UserError(f"A search needs a budget of at least 1 evaluation, not {evaluations}.")
    start = time.perf_counter()
    (proxy,) = task.proxies
    search = make_search(method, task, budget, seed, options or {})
    settings: dict[str, JSON] = {
        "space": task.space.name,
        "proxy": proxy.text,
        "method": method,
        "options": dict(options or {}),
        "budget": evaluations,
        "seed": seed,
        "max_params": budget.max_params,
        "max_flops": budget.max_flops,
        "batch": task.batch.id,
        "origin": str(task.origin),
    }
    about: dict[str, JSON] = {"data": task.batch.about, "device": task.device}
    run = store.begin_run("search", settings, manifest(settings | about))
    outcome = Outcome(task, proxy, run=run.id)
    if progress is not None:
        progress(outcome)
    while outcome.evaluated < evaluations:
        archs = search.ask(min(search.batch, evaluations - outcome.evaluated))
        if not archs:
            break
        scores, seconds = task.evaluate(archs, store, run, outcome.evaluated)
        merits = [proxy.merit(s[proxy.text].value) if s[proxy.text].ok else None for s in scores]
        search.tell(archs, merits)
        for arch, by_proxy in zip(archs, scores, strict=True):
            outcome.look(arch, task.space.text(arch), by_proxy[proxy.text])
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
