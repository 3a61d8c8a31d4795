"""A search inside one network that holds all others, NASI or Zero-Cost-PT, with a store.

Its budget is a number of steps. Where it stands is saved in the store after a step, every few seconds and at the end:
the same call goes on from there, and one with a larger budget from the end of a smaller one. What is found is scored by
the task's proxy like the winner of any other search. Stopped early, it gives what its steps so far say.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from epochzero.errors import UserError
from epochzero.objectives.objective import Objective
from epochzero.spaces.base import GivesPlans
from epochzero.store import JSON, Run, Store, manifest
from epochzero.study.result import TIME_LIMIT, Candidate, Outcome
from epochzero.study.task import Task
from epochzero.supernet import Found, Inside, State, defaults_of, make
from epochzero.types import Score

KIND = "inside"
EVERY = 5.0
"""seconds between two saved states"""
INTERRUPTED = "it was interrupted"
Progress = Callable[[int, int, str], None]
"""(steps taken, steps in all, what was found so far)"""


@dataclass(frozen=True)
class Searched:
    """What came out."""

    outcome: Outcome
    found: Found


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
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> Searched:
    """Take so many steps, the method's own number by default, or as many as there is time for."""
    if not isinstance(task.space, GivesPlans):
        raise UserError(f"{method} needs a space of plans, and {task.space.name} gives modules: use evolution.")
    outcome = Outcome(task, objective)
    sized = partial(make, space=task.space, batch=task.batch, seed=seed, device=task.device, options=options)
    search = outcome.clock.timed("building", sized)(method)
    total = search.steps if steps is None else steps
    run = _begin(outcome, method, total, seed, options or {}, store)
    before = outcome.clock.seconds
    found, outcome.stopped = _taken(search, run, total, _state(store, run), outcome, progress, time_limit)
    outcome.clock.add("scoring", outcome.clock.seconds - before)
    outcome.steps = found.steps
    kept = None if outcome.stopped else run  # what comes of it so far may not be what it ends with
    scores, seconds = task.evaluate([found.arch], store, kept, 0)
    outcome.clock.add("scoring", seconds)
    outcome.tell([found.arch], scores)
    if outcome.best is None:  # the search chose it, whether or not the proxy has a word on it
        why = objective.why_not(scores[0])
        outcome.best = Candidate(found.arch, task.space.text(found.arch), Score.degenerate(why))
    outcome.seconds = outcome.clock.seconds
    if not outcome.stopped:
        if found.steps < total:
            outcome.remarks.append(f"{method} takes whole proposals: {found.steps} of the {total} steps were taken.")
        run.finish({"best": outcome.best.text, "steps": found.steps})
    return Searched(outcome, found)


def _taken(
    search: Inside,
    run: Run,
    total: int,
    state: State | None,
    outcome: Outcome,
    progress: Progress | None,
    time_limit: float | None,
) -> tuple[Found, str]:
    """Take the steps; what they found, and why they ended early."""
    latest = state
    complete = state if state is not None and _has_network(search, state) else None
    written = time.perf_counter()

    def after(now: State) -> None:
        nonlocal latest, complete, written
        latest = now
        step = int(now["step"])  # type: ignore[arg-type]
        complete = now if _has_network(search, now) else complete
        if time.perf_counter() - written > EVERY:
            run.save(now)
            written = time.perf_counter()
        if progress is not None:
            progress(step, total, search.standing(now))
        if time_limit is not None and outcome.clock.seconds >= time_limit and step < total:
            raise _TimeUp

    try:
        found = search.run(total, after, state)
    except (_TimeUp, KeyboardInterrupt) as stop:
        if latest is not None:
            run.save(latest)
        if complete is None:
            if isinstance(stop, KeyboardInterrupt):
                raise
            raise UserError(
                f"{time_limit:g} s were not enough to find a network: give more time, or the same command again with "
                "the same --store, which goes on from here."
            ) from None
        found = search.run(int(complete["step"]), None, complete)  # type: ignore[arg-type]
        return found, INTERRUPTED if isinstance(stop, KeyboardInterrupt) else f"{TIME_LIMIT} of {time_limit:g} s"
    run.save(found.state)
    return found, ""


def _has_network(search: Inside, state: State) -> bool:
    """Whether the steps so far make up a network, and not a part of one."""
    step = int(state["step"])  # type: ignore[arg-type]
    return step > 0 and step % getattr(search, "each", 1) == 0


def _state(store: Store, run: Run) -> State | None:
    """Where this run stands, or the same search with a smaller budget."""
    own = run.saved()
    if own is not None:
        return own

    def kin(other: Run) -> bool:
        same = {**other.settings, "budget": 0} == {**run.settings, "budget": 0}
        return other.kind == KIND and same and other.settings["budget"] < run.settings["budget"]  # type: ignore[operator]

    states = [saved for other in store.runs() if kin(other) and (saved := other.saved()) is not None]
    return max(states, key=lambda state: state["step"], default=None)  # type: ignore[arg-type, return-value]


def _begin(outcome: Outcome, method: str, steps: int, seed: int, options: Mapping[str, Any], store: Store) -> Run:
    """Begin the run that these settings define, or go on with it."""
    task = outcome.task
    settings: dict[str, JSON] = {
        "space": task.space.name,
        "proxy": outcome.objective.text,
        "method": method,
        "options": {key: str(value) for key, value in (defaults_of(method) | dict(options)).items()},
        "budget": steps,
        "seed": seed,
        "batch": task.batch.id,
        "origin": str(task.origin),
    }
    about: dict[str, JSON] = {"data": task.batch.about, "device": task.device}
    run = store.begin_run(KIND, settings, manifest(settings | about))
    outcome.run = run.id
    return run
