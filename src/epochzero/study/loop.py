"""The loop of a search: ask, score, store, tell. Killed at any moment, it resumes from the store."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from epochzero.errors import UnknownNameError, UserError
from epochzero.objectives.goals import Goals
from epochzero.objectives.objective import Objective, is_looked_up
from epochzero.registry import near_miss, searches
from epochzero.spaces.budget import Budget
from epochzero.store import JSON, Run, Store, manifest
from epochzero.store.database import MEMORY
from epochzero.study.methods.base import Choosing, Pooling, Revising, Search
from epochzero.study.pool import PoolSpace, scored_pool
from epochzero.study.result import TIME_LIMIT, Result
from epochzero.study.task import Task

if TYPE_CHECKING:
    from epochzero.hardware.latency import LatencyLimit

Watch = Callable[[Any], None]
"""called with the result so far, again and again while a search runs"""
EVALUATIONS = 300
"""the budget of a search that has none of its own"""


@runtime_checkable
class FittedToTable(Protocol):
    """A space whose networks fit one table of clicks."""

    dense: int
    tables: Sequence[int]
    widths: Sequence[int]
    rows: Sequence[int]


def budget_of(method: str, space: Any, options: Mapping[str, Any] | None = None) -> int:
    """The default budget of a search: the published number of networks, if there is one, else 300."""
    budget = getattr(searches[method], "budget", EVALUATIONS)
    return int(budget(space, resolved(method, options or {})) if callable(budget) else budget)


def defaults_of(method: str) -> dict[str, Any]:
    """The options of a search, with their defaults."""
    signature = inspect.signature(searches[method]).parameters.values()
    return {p.name: p.default for p in signature if p.kind is p.KEYWORD_ONLY}


def resolved(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all options of a search; UserError for one that is unknown, of the wrong type or not finite."""
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
    result: Result,
    budget: Budget,
    seed: int,
    options: Mapping[str, Any],
    store: Store,
    progress: Watch,
    latency: LatencyLimit | None = None,
    time_limit: float | None = None,
) -> Search:
    """Returns the search of that name, on the part of the space that fits the budget and is in the pool.

    If time runs out before its own pool is scored, it gets the part that was, and the result says so.
    """
    maker, task = searches[method], result.task
    known = resolved(method, options)
    from epochzero.engine.space_networks import budgeted

    space: Any = budgeted(task.space, budget, task.batch)
    space.fits = result.clock.timed("building", space.fits)
    for source in task.sources:
        if source.candidates is not None:
            space = PoolSpace(space, source.candidates, source.name)
    if latency is not None:
        space = latency.within(space)
    if not isinstance(maker, Pooling):
        search: Search = maker(space, seed, **options)
        return search

    def show(done: int, total: int) -> None:
        result.note, result.seconds = f"pool {done:,} of {total:,}", result.clock.seconds
        progress(result)

    pooled = scored_pool(task, space, maker.wants(known), seed, store, show, lambda: _time_left(result, time_limit))
    result.clock.add("scoring", pooled.seconds)
    result.note = ""
    if not any(map(is_looked_up, result.objective.proxies)):
        result.remarks.append(
            f"{method} chooses networks to be trained: here {result.text} takes the place of their accuracy, which "
            "--proxy table:COLUMN or --feedback would give."
        )
    if pooled.held:
        result.remarks.append(f"Of the pool of {pooled.wanted:,} networks {pooled.held:,} were read from the store.")
    if len(pooled.pool.archs) < pooled.wanted:
        result.pool = f"{len(pooled.pool.archs):,} of {pooled.wanted:,}"
    made: Any = maker
    return made(space, seed, pooled.pool, **options)  # type: ignore[no-any-return]


def _time_left(result: Result, time_limit: float | None) -> float:
    return math.inf if time_limit is None else time_limit - result.clock.seconds


def run_search(
    task: Task,
    method: str = "evolution",
    evaluations: int | None = None,
    *,
    seed: int = 0,
    objective: Objective | Goals | None = None,
    budget: Budget = Budget(),
    latency: LatencyLimit | None = None,
    options: Mapping[str, Any] | None = None,
    store: Store,
    progress: Watch | None = None,
    time_limit: float | None = None,
    kind: type[Result] = Result,
) -> Result:
    """Searches until `evaluations` networks are evaluated, or none is left; by default the task's proxy decides.

    After `time_limit` seconds only a first batch is still begun: the run stays unfinished, and the same search resumes
    it. If scoring a pool took all the time, one of the scored networks is evaluated, in a run of its own. The search
    gives up if the first networks have no score at all. `kind` is the class of the result.
    """
    if evaluations is None:
        evaluations = budget_of(method, task.space, options)
    if evaluations < 1:
        raise UserError(f"A search needs a budget of at least 1 evaluation, not {evaluations}.")
    _check_goals(method, objective)
    task.by_source()
    result = kind(task, objective or Objective(tuple(task.proxies)))
    result.method, result.total, result.limits = method, evaluations, budget
    result.limit, result.store = latency, None if store.path == MEMORY else store.path
    for source in (*task.sources, *(() if latency is None else (latency.latency,))):
        if hasattr(source, "keep"):  # latencies that are measured
            source.keep(store, result.clock)
    tell = progress or (lambda result: None)
    search = make_search(method, result, budget, seed, options or {}, store, tell, latency, time_limit)
    run = _begin(result, method, evaluations, seed, budget, latency, options or {}, store)
    tell(result)
    while result.evaluated < evaluations or result.pool:
        result.stopped = _reason_to_stop(result, time_limit)
        if result.stopped:
            break
        archs = search.ask(1 if result.pool else min(search.batch, evaluations - result.evaluated))
        if not archs:
            result.stopped = "the search has no more networks to evaluate"
            break
        measuring = result.clock.spent["latency"]
        new: set[int] = set()
        scores, seconds = task.evaluate(archs, store, run, result.evaluated, new)
        result.recalled += 0 if store.path == MEMORY else len(archs) - len(new)
        seconds -= result.clock.spent["latency"] - measuring
        merits, revised = result.tell(archs, scores)
        search.tell(archs, merits)
        if revised is not None and isinstance(search, Revising):
            search.revise(revised)
        result.clock.add("scoring", seconds)
        result.seconds = result.clock.seconds
        tell(result)
    if isinstance(search, Choosing):
        _choose(search, result, store)
    result.seconds = result.clock.seconds
    if result.out_of_time:
        return result
    best, (before, scored) = result.best, result.earlier
    clock = result.clock.split(result.seconds) | ({"scoring in earlier runs": scored} if before else {})
    summary: dict[str, JSON] = {
        "best": None if best is None else best.text,
        "value": None if best is None else best.score.value,
        "evaluated": result.evaluated,
        "unscored": result.unscored,
        "clock": {part: round(spent, 3) for part, spent in clock.items()},
    }
    if result.front is not None:
        summary["front"] = [member.text for member in result.members]
    run.finish(summary)
    return result


def _choose(search: Choosing, result: Result, store: Store) -> None:
    """Takes the winner that the search names itself; if it has none yet, the result says so."""
    if search.chosen is not None:
        result.name_winner(search.chosen, result.task.evaluate([search.chosen], store, None, 0)[0][0])
    elif not result.stopped:
        result.stopped = f"{result.evaluated} networks were too few for its own winner; this is the best of them"


def _reason_to_stop(result: Result, time_limit: float | None) -> str:
    """Why the search should end now; empty if it should not."""
    if result.evaluated and _time_left(result, time_limit) <= 0:
        pool = f"scoring the pool took all the time: {result.pool} scored; the same command with --store resumes"
        return f"{TIME_LIMIT} of {time_limit:g} s" + (f"; {pool}" if result.pool else "")
    return f"none of the first {result.evaluated} networks has a score" if result.hopeless() else ""


def _check_goals(method: str, objective: Objective | Goals | None) -> None:
    """UserError if the number of objectives does not suit the search, or if it cannot learn from ranks that move."""
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
    result: Result,
    method: str,
    evaluations: int,
    seed: int,
    budget: Budget,
    latency: LatencyLimit | None,
    options: Mapping[str, Any],
    store: Store,
) -> Run:
    """Begins the run that these settings define, or resumes it."""
    task, objective = result.task, result.objective
    settings: dict[str, JSON] = {
        "space": task.space.name,
        "proxy": result.text,
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
    if result.pool:
        settings["pool"] = result.pool
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
    result.run, result.earlier = run.id, run.so_far()
    return run
