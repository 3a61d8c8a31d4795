"""A search inside one network that contains all others, NASI or Zero-Cost-PT, with a store.

Its budget is a number of steps. Its state is saved in the store every few seconds and at the end: the same call resumes
from there, and a larger budget continues a smaller one. The task's proxy scores the network it ends with, like the
winner of any other search. Stopped early, it returns the network that the steps so far lead to.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from epochzero.errors import UserError
from epochzero.objectives.objective import Objective
from epochzero.registry import options_of
from epochzero.spaces.base import GivesPlans
from epochzero.store import JSON, Run, Store
from epochzero.study.loop import Watch, begun
from epochzero.study.result import INTERRUPTED, TIME_LIMIT, Candidate, Result
from epochzero.study.task import Task
from epochzero.types import Score

if TYPE_CHECKING:
    from epochzero.supernet import Found, Inside, State

KIND = "inside"
EVERY = 5.0
"""seconds between two saved states"""


class _TimeUp(Exception):  # noqa: N818 - nothing went wrong
    """The time limit is reached."""


def run_inside(
    task: Task,
    method: str,
    steps: int | None = None,
    *,
    seed: int = 0,
    objective: Objective,
    options: Mapping[str, Any] | None = None,
    store: Store,
    progress: Watch | None = None,
    time_limit: float | None = None,
    kind: type[Result] = Result,
) -> Result:
    """Takes the steps, the method's own number by default, or as many as there is time for.

    A method with an option `proxy` uses that of the objective unless the options name another, or its own where the
    objective is `auto`.
    """
    from epochzero.supernet import make, methods

    if not isinstance(task.space, GivesPlans):
        raise UserError(f"{method} needs a space of plans, and {task.space.name} gives modules: use evolution.")
    options = dict(options or {})
    known = options_of(methods[method])
    if "proxy" in known:
        if objective.method and not objective.made_of:
            raise UserError(f"{method} goes by one proxy, not by {objective.text}: name one with --proxy.")
        options = ({} if objective.made_of else {"proxy": objective.text}) | options
    objective = objective.calibrated(task.space.name, task.batch.input_shape)
    result = kind(task, objective)
    sized = partial(make, space=task.space, batch=task.batch, seed=seed, device=task.device, options=options)
    search = result.clock.timed("building", sized)(method)
    result.method, result.total = method, search.steps if steps is None else steps
    result.time_limit = math.inf if time_limit is None else time_limit
    texts: dict[str, JSON] = {key: str(value) for key, value in (known | options).items()}
    run = begun(result, store, KIND, {"options": texts, "seed": seed})
    before = result.clock.seconds
    inside, result.stopped = _taken(search, run, _state(store, run), result, progress)
    result.inside, result.steps = inside, inside.steps
    result.clock.spent["scoring"] += result.clock.seconds - before
    kept = None if result.stopped else run  # a search that is not at its end may end with another network
    scores, seconds = task.evaluate([inside.arch], store, kept, 0)
    result.clock.spent["scoring"] += seconds
    result.tell([inside.arch], scores)
    if result.best is None:  # the search chose it, whether or not the proxy has a score for it
        why = objective.why_not(scores[0])
        result.best = Candidate(inside.arch, task.space.text(inside.arch), Score.degenerate(why))
    result.seconds, result.note = result.clock.seconds, ""
    if not result.stopped:
        if inside.steps < result.total:
            result.remarks.append(
                f"{method} takes whole proposals: {inside.steps} of the {result.total} steps were taken."
            )
        summary: dict[str, Any] = {"best": result.best.text, "steps": inside.steps, "remarks": result.remarks}
        run.finish(summary | {"facts": asdict(result.facts) if result.store and result.facts else None})
    return result


def _taken(search: Inside, run: Run, state: State | None, result: Result, progress: Watch | None) -> tuple[Found, str]:
    """Takes the steps; returns what they lead to, and why they ended early."""
    latest = state
    complete = state if state is not None and _has_network(search, state) else None
    written = time.perf_counter()

    def after(now: State) -> None:
        nonlocal latest, complete, written
        latest = now
        result.steps = int(now["step"])  # type: ignore[arg-type]
        complete = now if _has_network(search, now) else complete
        if time.perf_counter() - written > EVERY:
            run.save(now)
            written = time.perf_counter()
        if progress is not None:
            result.note, result.seconds = search.standing(now), result.clock.seconds
            progress(result)
        if result.time_left <= 0 and result.steps < result.total:
            raise _TimeUp

    try:
        inside = search.run(result.total, after, state)
    except (_TimeUp, KeyboardInterrupt) as stop:
        if latest is not None:
            run.save(latest)
        if complete is None:
            if isinstance(stop, KeyboardInterrupt):
                raise
            raise UserError(
                f"{result.time_limit:g} s were not enough to find a network: give more time, or the same command again "
                "with the same --store, which resumes the search."
            ) from None
        inside = search.run(int(complete["step"]), None, complete)  # type: ignore[arg-type]
        limit = f"{TIME_LIMIT} of {result.time_limit:g} s"
        return inside, INTERRUPTED if isinstance(stop, KeyboardInterrupt) else limit
    run.save(inside.state)
    return inside, ""


def _has_network(search: Inside, state: State) -> bool:
    """True if the steps so far make up a whole network."""
    step = int(state["step"])  # type: ignore[arg-type]
    return step > 0 and step % getattr(search, "each", 1) == 0


def _state(store: Store, run: Run) -> State | None:
    """The saved state of this run, or else of the same search with a smaller budget."""
    own = run.saved()
    if own is not None:
        return own

    def kin(other: Run) -> bool:
        same = {**other.settings, "budget": 0} == {**run.settings, "budget": 0}
        return other.kind == KIND and same and other.settings["budget"] < run.settings["budget"]  # type: ignore[operator]

    states = [saved for other in store.runs() if kin(other) and (saved := other.saved()) is not None]
    return max(states, key=lambda state: state["step"], default=None)  # type: ignore[arg-type, return-value]
