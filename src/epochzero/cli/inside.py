"""`epochzero search --method nasi` and `zero_cost_pt`: searches inside one network that holds all others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from epochzero.cli.console import progress_bar
from epochzero.errors import UserError
from epochzero.objectives.objective import Objective
from epochzero.store import Store
from epochzero.study.inside import run_inside
from epochzero.study.result import Outcome
from epochzero.study.task import Task
from epochzero.supernet import defaults_of

PARTS = 100
"""batches of data, used in turn"""


def check_inside(method: str, given: Mapping[str, object]) -> None:
    """UserError for options that mean nothing inside one network."""
    for option, value in given.items():
        if value not in (None, "local"):
            raise UserError(
                f"{method} searches inside one network, so {option} means nothing to it: leave it out, or use "
                "--method evolution."
            )


def searched_inside(
    task: Task,
    method: str,
    steps: int | None,
    *,
    seed: int,
    objective: Objective,
    options: Mapping[str, Any],
    store: Store,
    time_limit: float | None,
) -> tuple[Outcome, dict[str, Any]]:
    """Search with a bar; what was found, and what to report beside it.

    Where the method takes a proxy, it is that of the command.
    """
    by_proxy = "proxy" in defaults_of(method)
    if by_proxy and objective.method:
        raise UserError(f"{method} goes by one proxy, not by {objective.text}: name one with --proxy.")
    own = {"proxy": objective.text} if by_proxy else {}
    with progress_bar(method) as bar:
        done = run_inside(
            task,
            method,
            steps,
            seed=seed,
            objective=objective,
            options=own | dict(options),
            store=store,
            progress=bar,
            time_limit=time_limit,
        )
    return done.outcome, {"steps": done.found.steps, "weights": done.found.weights}
