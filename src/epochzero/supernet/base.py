"""The interface of a search inside one network: it takes steps, and its state after each step can be stored.

search = make("nasi", space, batch, seed=0, device="cpu", options={"nu": "adaptive"})
search.run(100).arch
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from epochzero.data import Batch
from epochzero.errors import UserError
from epochzero.registry import Registry, check_known, made_with, options_of
from epochzero.store import JSON
from epochzero.strict import batch_name

State = dict[str, JSON]
"""all that a search knows: `step`, how many it has taken, `settings`, and what else it needs to go on"""
AfterStep = Callable[[State], None]
"""called after each step and in a long preparation; the state may be written as JSON, and given to `run` to go on"""


@dataclass(frozen=True)
class Found:
    """The outcome of a search inside one network."""

    arch: Any
    """an architecture of the space"""
    steps: int
    trajectory: dict[str, list[float]]
    """measurements at each step"""
    weights: dict[str, dict[str, float]]
    """of each choice, what the search thinks of its options: the larger the better"""
    state: State


class Inside(Protocol):
    """A search inside one network."""

    steps: int
    """the default number of steps"""

    def run(self, steps: int, progress: AfterStep | None = None, state: State | None = None) -> Found:
        """Takes steps until there are `steps`, those of the state included."""

    def standing(self, state: State) -> str:
        """The best so far, or the preparation under way, in a few words."""


methods: Registry[Any] = Registry("search inside one network", "epochzero.supernet", group="epochzero.supernet")
"""name to maker, a function of space, batch, seed, device and options"""


def make(
    method: str,
    space: Any,
    batch: Batch,
    seed: int = 0,
    device: str = "cpu",
    options: Mapping[str, Any] | None = None,
) -> Inside:
    """The search of that name; options may be given as text."""
    known = options_of(methods[method])
    given = {}
    for option, value in (options or {}).items():
        check_known(option, known, f"The search {method} has no option '{option}'", "It has")
        kind = type(known[option])
        try:
            given[option] = kind(value)
        except (TypeError, ValueError):
            raise UserError(
                f"The search {method} takes {kind.__name__} for '{option}' (default {known[option]}), not {value!r}."
            ) from None
    search: Inside = made_with(given, methods[method], space, batch, seed, device)
    return search


def settings_of(method: str, space: Any, batch: Batch, seed: int, **options: JSON) -> State:
    """The settings that define a search, as its state holds them."""
    return {
        "method": method,
        "space": space.name,
        "batch": batch_name(batch.id),
        "parts": batch.parts,
        "seed": seed,
        **options,
    }


def resumed(state: State | None, settings: State, steps: int, fresh: State) -> State:
    """Where to go on from; UserError for a state of another search."""
    if steps < 1:
        raise UserError(f"A search needs a budget of at least 1 step, not {steps}.")
    if state is None:
        return {"step": 0, "settings": settings, **fresh}
    if state.get("settings") != settings or not fresh.keys() <= state.keys():
        raise UserError("This state is that of a search with other settings: start anew, or give the same settings.")
    if int(state["step"]) > steps:  # type: ignore[arg-type]
        raise UserError(f"This search has taken {state['step']} steps already, more than {steps}.")
    return dict(state)


def rolled(batch: Batch, first: int) -> Batch:
    """The same data with another part first; after the last part comes part 0 again."""
    return replace(batch, make_part=lambda index: batch.part((first + index) % batch.parts))
