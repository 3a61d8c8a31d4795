"""The loop of a search: ask, score, store, tell. Killed at any moment, it resumes from the store."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from epochzero.errors import UnknownNameError, UserError
from epochzero.executors.ahead import announced
from epochzero.objectives.goals import Goals
from epochzero.objectives.objective import Objective, is_looked_up
from epochzero.registry import made_with, near_miss, options_of, searches
from epochzero.spaces.budget import Budget
from epochzero.store import JSON, Run, Store, manifest
from epochzero.store.database import MEMORY
from epochzero.study.batches import Batches, check_ahead
from epochzero.study.methods.base import Choosing, Pool, Pooling, Remarking, Revising, Search, Wanted
from epochzero.study.pool import PoolSpace, scored_pool
from epochzero.study.result import TIME_LIMIT, Result
from epochzero.study.task import Task

if TYPE_CHECKING:
    from epochzero.hardware.latency import LatencyLimit

READ = "were read from the store."
"""the end of a remark that a resumed search has, and an undisturbed one not"""
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


def resolved(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all options of a search; UserError for one that is unknown, of the wrong type or not finite."""
    known = options_of(searches[method])
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


def make_search(result: Result, seed: int, options: Mapping[str, Any], store: Store, progress: Watch) -> Search:
    """Returns the search of the result's method, on the part of the space within its limits and in the pool.

    If time runs out before its own pool is scored, it gets the part that was, and the result says so.
    """
    from epochzero.engine.space_networks import budgeted

    method, task = result.method, result.task
    maker, known = searches[method], resolved(method, options)
    space: Any = budgeted(task.space, result.limits, task.batch)
    space.fits = result.clock.timed("building", space.fits)
    for source in task.sources:
        if source.candidates is not None:
            space = PoolSpace(space, source.candidates, source.name)
    if result.limit is not None:
        space = result.limit.within(space)
    if isinstance(maker, Pooling):
        pool = _pool(result, space, maker.wants(known), seed, store, progress)
        search: Search = made_with(options, searches[method], space, seed, pool)
    else:
        search = made_with(options, maker, space, seed)
    if search.batch < 1:
        raise UserError(f"The search {method} asks for at least 1 architecture at a time, not {search.batch}.")
    return search


def _pool(result: Result, space: Any, wanted: Wanted, seed: int, store: Store, progress: Watch) -> Pool:
    """The scored pool that the search starts from; the result tells what the user should know of it."""

    def show(done: int, total: int) -> None:
        result.note, result.seconds = f"pool {done:,} of {total:,}", result.clock.seconds
        progress(result)

    pooled = scored_pool(result.task, space, wanted, seed, store, show, lambda: result.time_left)
    result.clock.spent["scoring"] += pooled.seconds
    result.note = ""
    if not any(map(is_looked_up, result.objective.proxies)):
        result.remarks.append(
            f"{result.method} chooses networks to be trained: here {result.text} takes the place of their accuracy, "
            "which --proxy table:COLUMN or --feedback would give."
        )
    if pooled.held:
        result.remarks.append(f"Of the pool of {pooled.wanted:,} networks {pooled.held:,} {READ}")
    if len(pooled.pool.archs) < pooled.wanted:
        result.pool = f"{len(pooled.pool.archs):,} of {pooled.wanted:,}"
    return pooled.pool


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
    objective = _suited(objective or Objective(tuple(task.proxies)), method, task)
    check_ahead(method, task.ahead)
    task.by_source()
    result = kind(task, objective)
    result.method, result.total, result.limits, result.limit = method, evaluations, budget, latency
    result.time_limit = math.inf if time_limit is None else time_limit
    for source in (*task.sources, *(() if latency is None else (latency.latency,))):
        if hasattr(source, "keep"):  # latencies that are measured
            source.keep(store, result.clock)
    tell = progress or (lambda result: None)
    search = make_search(result, seed, options or {}, store, tell)
    run = _begin(result, seed, options or {}, store)
    tell(result)
    with announced(task.executor, task.ahead) as executor:
        batches = Batches(search, replace(task, executor=executor), store)
        while result.evaluated < evaluations or result.pool:
            if not _one_batch(batches, result, run, evaluations):
                break
            tell(result)
    if isinstance(search, Choosing):
        _choose(search, result, store)
    if isinstance(search, Remarking):
        result.remarks += search.remarks
    result.remarks += result.given_way
    result.seconds = result.clock.seconds
    if result.out_of_time:
        return result
    best, (before, scored) = result.best, result.earlier
    clock = result.clock.split(result.seconds) | ({"scoring in earlier runs": scored} if before else {})
    summary: dict[str, Any] = {
        "best": None if best is None else best.text,
        "value": None if best is None else best.score.value,
        "evaluated": result.evaluated,
        "unscored": result.unscored,
        "remarks": [one for one in result.remarks if not one.endswith(READ)],
        "facts": asdict(result.facts) if result.store and result.facts else None,
        "clock": {part: round(spent, 3) for part, spent in clock.items()},
    }
    if result.front is not None:
        summary["front"] = [member.text for member in result.members]
    run.finish(summary)
    return result


def _one_batch(batches: Batches, result: Result, run: Run, evaluations: int) -> bool:
    """Evaluates one batch; False if the search should end."""
    search, store = batches.search, batches.store
    result.stopped = _reason_to_stop(result)
    if result.stopped:
        return False
    archs = batches.next(1 if result.pool else evaluations - result.evaluated)
    if not archs:
        result.stopped = "the search has no more networks to evaluate"
        return False
    measuring = result.clock.spent["latency"]
    new: set[int] = set()
    scores, seconds = batches.task.evaluate(archs, store, run, result.evaluated, new)
    result.recalled += 0 if result.store is None else len(archs) - len(new)
    seconds -= result.clock.spent["latency"] - measuring
    merits, revised = result.tell(archs, scores)
    search.tell(archs, merits)
    if revised is not None and isinstance(search, Revising):
        search.revise(revised)
    result.clock.spent["scoring"] += seconds
    result.seconds = result.clock.seconds
    return True


def _choose(search: Choosing, result: Result, store: Store) -> None:
    """Takes the winner that the search names itself; if it has none yet, the result says so."""
    if search.chosen is not None:
        result.name_winner(search.chosen, result.task.evaluate([search.chosen], store, None, 0)[0][0])
    elif not result.stopped:
        result.stopped = f"{result.evaluated} networks were too few for its own winner; this is the best of them"


def _reason_to_stop(result: Result) -> str:
    """Why the search should end now; empty if it should not."""
    if result.evaluated and result.time_left <= 0:
        pool = f"scoring the pool took all the time: {result.pool} scored; the same command with --store resumes"
        return f"{TIME_LIMIT} of {result.time_limit:g} s" + (f"; {pool}" if result.pool else "")
    return f"none of the first {result.evaluated} networks has a score" if result.hopeless() else ""


def _suited(objective: Objective | Goals, method: str, task: Task) -> Objective | Goals:
    """Returns the objective as the search can use it: `auto` with values that stay, for one that needs them.

    UserError if the number of objectives does not suit the search, or if it cannot learn from ranks that move.
    """
    maker = searches[method]
    if isinstance(objective, Goals) or not _goes_by_ranks(maker):
        objective = objective.calibrated(task.space.name, task.batch.input_shape)
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
    return objective


def _goes_by_ranks(maker: Any) -> bool:
    return hasattr(maker, "revise") or not getattr(maker, "learns", True)


def begun(
    result: Result, store: Store, kind: str, own: Mapping[str, JSON], about: Callable[[], Mapping[str, JSON]] = dict
) -> Run:
    """Begins or resumes the run that the settings of any search and its own define; `about` is for the manifest."""
    task = result.task
    settings: dict[str, JSON] = {
        "space": task.space.name,
        "proxy": result.text,
        "method": result.method,
        "budget": result.total,
        "batch": task.setting.batch,
        "origin": str(task.origin),
        **own,
    }
    facts: dict[str, JSON] = {}
    if store.path != MEMORY:
        result.store = store.path
        shape = list(task.batch.input_shape)
        facts = {"data": task.batch.about, "input_shape": shape, "device": task.device, **about()}
    run = store.begin_run(kind, settings, manifest(settings | facts) if facts else {})
    result.run = run.id
    return run


def _begin(result: Result, seed: int, options: Mapping[str, Any], store: Store) -> Run:
    """Begins the run of a search, or resumes it."""
    task, limit = result.task, result.limit
    settings: dict[str, JSON] = {
        "options": dict(options),
        "seed": seed,
        "max_params": result.limits.max_params,
        "max_flops": result.limits.max_flops,
        **result.limits.facts,
    }
    if limit is not None:
        settings |= limit.settings
    if result.pool:
        settings["pool"] = result.pool
    if task.ahead:
        settings["ahead"] = task.ahead
    if task.sources:
        settings["sources"] = [source.name for source in task.sources]
    run = begun(result, store, "search", settings, partial(_about, result, options))
    if run.resumed:
        result.earlier = run.so_far()
    return run


def _about(result: Result, options: Mapping[str, Any]) -> dict[str, JSON]:
    """The manifest's facts about a search, besides its settings."""
    space, proxies = result.task.space, result.objective.proxies
    about: dict[str, JSON] = {
        "executor": result.task.executor.about(),
        "resolved": {"proxy": {p.text: dict(p.resolved) for p in proxies}, "method": resolved(result.method, options)},
    }
    if result.objective.made_of:
        about["auto"] = result.objective.about
    if isinstance(space, FittedToTable):
        about["fitted"] = {"dense": space.dense, "tables": space.tables, "widths": space.widths, "rows": space.rows}
    return about
