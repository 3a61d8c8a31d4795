"""The loop of a search: ask, score, store, tell. Killed at any moment, it resumes from the store."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from epochzero.errors import UnknownNameError, UserError
from epochzero.hardware.latency import LatencyLimit, SwiftSpace, teller
from epochzero.objectives.goals import Goals
from epochzero.objectives.objective import Objective, is_looked_up
from epochzero.registry import near_miss, searches
from epochzero.spaces.budget import Budget
from epochzero.store import JSON, Run, Store, manifest
from epochzero.store.database import MEMORY
from epochzero.study.front import Front
from epochzero.study.methods.base import Choosing, Pooling, Revising, Search
from epochzero.study.networks import budgeted
from epochzero.study.pool import PoolSpace, scored_pool
from epochzero.study.result import TIME_LIMIT, Candidate, Outcome
from epochzero.study.task import Task

__all__ = ["Candidate", "Outcome", "Progress", "budget_of", "run_search"]

Progress = Callable[[Outcome], None]
EVALUATIONS = 300
"""the budget of a search that has none of its own"""


@runtime_checkable
class FittedToTable(Protocol):
    """A space whose networks are made for one table of clicks."""

    dense: int
    tables: Sequence[int]
    widths: Sequence[int]
    rows: Sequence[int]


def budget_of(method: str, space: Any, options: Mapping[str, Any] | None = None) -> int:
    """How many networks the search evaluates where nothing is said: the published number, if there is one."""
    budget = getattr(searches[method], "budget", EVALUATIONS)
    return int(budget(space, resolved(method, options or {})) if callable(budget) else budget)


def defaults_of(method: str) -> dict[str, Any]:
    """The options of a search, with their defaults."""
    signature = inspect.signature(searches[method]).parameters.values()
    return {p.name: p.default for p in signature if p.kind is p.KEYWORD_ONLY}


def resolved(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a search; UserError for one that it does not have, that is of another type or not finite."""
    known = defaults_of(method)
    for option, value in options.items():
        if option not in known:
            has = f"It has {', '.join(known)}." if known else "It has none."
            raise UnknownNameError(
                f"The search {method} has no option '{option}'.{near_miss(option, list(known))} {has}"
            )
        kind = type(known[option])
        if not isinstance(value, (int, float) if kind is float else kind):
            raise UserError(
                f"The search {method} takes {kind.__name__} for '{option}' (default {known[option]}), not {value!r}."
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"The search {method} takes a finite number for '{option}', not {value}.")
    return known | dict(options)


def make_search(
    method: str,
    outcome: Outcome,
    budget: Budget,
    seed: int,
    options: Mapping[str, Any],
    store: Store,
    progress: Progress,
    latency: LatencyLimit | None = None,
    time_limit: float | None = None,
) -> Search:
    """The search of that name, on the part of the space that fits the budget and that the pool holds.

    Where the time is up before its own pool is scored, it has to make do with what was, and the outcome says so.
    """
    maker, task = searches[method], outcome.task
    known = resolved(method, options)
    space: Any = budgeted(task.space, budget, task.batch)
    space.fits = outcome.clock.timed("building", space.fits)
    for source in task.sources:
        if source.candidates is not None:
            space = PoolSpace(space, source.candidates, source.name)
    if latency is not None:
        space = SwiftSpace(space, latency)
    if not isinstance(maker, Pooling):
        found: Search = maker(space, seed, **options)
        return found

    def show(done: int, total: int) -> None:
        outcome.note, outcome.seconds = f"pool {done:,} of {total:,}", outcome.clock.seconds
        progress(outcome)

    pooled = scored_pool(task, space, maker.wants(known), seed, store, show, lambda: _time_left(outcome, time_limit))
    outcome.clock.add("scoring", pooled.seconds)
    outcome.note = ""
    if not any(map(is_looked_up, outcome.objective.proxies)):
        outcome.remarks.append(
            f"{method} chooses networks to be trained: here {outcome.text} stands in for their accuracy, which --proxy "
            "table:COLUMN or --feedback would tell."
        )
    if pooled.held:
        outcome.remarks.append(f"Of the pool of {pooled.wanted:,} networks {pooled.held:,} were read from the store.")
    if len(pooled.pool.archs) < pooled.wanted:
        outcome.pool = f"{len(pooled.pool.archs):,} of {pooled.wanted:,}"
    made: Any = maker
    return made(space, seed, pooled.pool, **options)  # type: ignore[no-any-return]


def _time_left(outcome: Outcome, time_limit: float | None) -> float:
    return math.inf if time_limit is None else time_limit - outcome.clock.seconds


def run_search(
    task: Task,
    method: str = "evolution",
    evaluations: int = 100,
    *,
    seed: int = 0,
    objective: Objective | Goals | None = None,
    budget: Budget = Budget(),
    latency: LatencyLimit | None = None,
    options: Mapping[str, Any] | None = None,
    store: Store,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> Outcome:
    """Search until so many networks are evaluated, or none is left, by an objective or several goals; by default the
    task's proxy.

    After `time_limit` seconds no further batch is begun but the first: the run stays unfinished, and the same search
    goes on from there. Where a pool took all the time, one network of what was scored is looked at, in a run of its
    own. It gives up where the first networks have no score at all.
    """
    if evaluations < 1:
        raise UserError(f"A search needs a budget of at least 1 evaluation, not {evaluations}.")
    if time_limit is not None and not 0 < time_limit < math.inf:
        raise UserError(f"A search needs a time limit of more than 0 seconds, not {time_limit:g}.")
    _check_goals(method, objective)
    task.by_source()
    outcome = (
        Front(task, objective)
        if isinstance(objective, Goals)
        else Outcome(task, objective or Objective(tuple(task.proxies)))
    )
    if (told := teller(task, latency)) is not None:
        told.keep(store, outcome.clock)
    tell = progress or (lambda outcome: None)
    search = make_search(method, outcome, budget, seed, options or {}, store, tell, latency, time_limit)
    run = _begin(outcome, method, evaluations, seed, budget, latency, options or {}, store)
    tell(outcome)
    while outcome.evaluated < evaluations or outcome.pool:
        outcome.stopped = _reason_to_stop(outcome, time_limit)
        if outcome.stopped:
            break
        archs = search.ask(1 if outcome.pool else min(search.batch, evaluations - outcome.evaluated))
        if not archs:
            outcome.stopped = "the search has no more networks to look at"
            break
        measuring = outcome.clock.spent["latency"]
        new: set[int] = set()
        scores, seconds = task.evaluate(archs, store, run, outcome.evaluated, new)
        outcome.recalled += 0 if store.path == MEMORY else len(archs) - len(new)
        seconds -= outcome.clock.spent["latency"] - measuring
        merits, revised = outcome.tell(archs, scores)
        search.tell(archs, merits)
        if revised is not None and isinstance(search, Revising):
            search.revise(revised)
        outcome.clock.add("scoring", seconds)
        outcome.seconds = outcome.clock.seconds
        tell(outcome)
    if isinstance(search, Choosing):
        _choose(search, outcome, store)
    outcome.seconds = outcome.clock.seconds
    if outcome.out_of_time:
        return outcome
    best, (before, scored) = outcome.best, outcome.earlier
    clock = outcome.clock.split(outcome.seconds) | ({"scoring in earlier sittings": scored} if before else {})
    result: dict[str, JSON] = {
        "best": None if best is None else best.text,
        "value": None if best is None else best.score.value,
        "evaluated": outcome.evaluated,
        "unscored": outcome.unscored,
        "clock": {part: round(spent, 3) for part, spent in clock.items()},
    }
    if isinstance(outcome, Front):
        result["front"] = [member.text for member in outcome.members]
    run.finish(result)
    return outcome


def _choose(search: Choosing, outcome: Outcome, store: Store) -> None:
    """The winner that the search names itself; where it has none yet, that is said."""
    if search.chosen is not None:
        outcome.name_winner(search.chosen, outcome.task.evaluate([search.chosen], store, None, 0)[0][0])
    elif not outcome.stopped:
        outcome.stopped = f"{outcome.evaluated} networks were too few for its own winner; this is the best of them"


def _reason_to_stop(outcome: Outcome, time_limit: float | None) -> str:
    """Why no further batch is to be looked at; empty where there is no reason."""
    if outcome.evaluated and _time_left(outcome, time_limit) <= 0:
        pool = f"the pool took all the time: {outcome.pool} scored; the same command with --store goes on"
        return f"{TIME_LIMIT} of {time_limit:g} s" + (f"; {pool}" if outcome.pool else "")
    return f"none of the first {outcome.evaluated} networks has a score" if outcome.hopeless() else ""


def _check_goals(method: str, objective: Objective | Goals | None) -> None:
    """UserError where a search goes by one objective and is given several or the other way round, or learns from ranks
    that move without being told.
    """
    maker = searches[method]
    if isinstance(objective, Goals) and not getattr(maker, "several", False):
        able = " or ".join(name for name in searches if getattr(searches[name], "several", False))
        raise UserError(f"The search {method} goes by one objective, not by {objective.text}: use {able}.")
    if isinstance(objective, Objective) and objective.of_a_set and not _goes_by_ranks(maker):
        able = ", ".join(name for name in searches if _goes_by_ranks(searches[name]))
        raise UserError(
            f"The search {method} learns from merits that stay as they are, and {objective.text} ranks all networks "
            f"anew after each batch: use one of {able}."
        )
    if not isinstance(objective, Goals) and getattr(maker, "fewest", 1) > 1:
        raise UserError(f"The search {method} needs at least two objectives: give --objectives dextr,-flops.")


def _goes_by_ranks(maker: Any) -> bool:
    return hasattr(maker, "revise") or not getattr(maker, "learns", True)


def _begin(
    outcome: Outcome,
    method: str,
    evaluations: int,
    seed: int,
    budget: Budget,
    latency: LatencyLimit | None,
    options: Mapping[str, Any],
    store: Store,
) -> Run:
    """Begin the run that these settings define, or go on with it."""
    task, objective = outcome.task, outcome.objective
    settings: dict[str, JSON] = {
        "space": task.space.name,
        "proxy": outcome.text,
        "method": method,
        "options": dict(options),
        "budget": evaluations,
        "seed": seed,
        "max_params": budget.max_params,
        "max_flops": budget.max_flops,
        "batch": task.batch.id,
        "origin": str(task.origin),
    }
    if latency is not None:
        settings |= {"max_latency_ms": latency.milliseconds, "latency": latency.latency.name}
    if outcome.pool:
        settings["pool"] = outcome.pool
    if task.sources:
        settings["sources"] = [source.name for source in task.sources]
    about: dict[str, JSON] = {
        "data": task.batch.about,
        "device": task.device,
        "executor": task.executor.about(),
        "resolved": {
            "proxy": {p.text: dict(p.resolved) for p in objective.proxies},
            "method": resolved(method, options),
        },
    }
    if isinstance(space := task.space, FittedToTable):
        about["fitted"] = {"dense": space.dense, "tables": space.tables, "widths": space.widths, "rows": space.rows}
    run = store.begin_run("search", settings, manifest(settings | about))
    outcome.run, outcome.earlier = run.id, run.so_far()
    return run
