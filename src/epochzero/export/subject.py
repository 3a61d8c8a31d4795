"""The subject of an export: a network, its weights and facts about it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from epochzero.errors import StoreError, UserError
from epochzero.export.weights import Weights, fitting
from epochzero.plan import Plan
from epochzero.plan.init import draw
from epochzero.spaces.base import AnySpace, Space
from epochzero.store import Run, Store
from epochzero.types import Origin, Shape


@dataclass(frozen=True, eq=False)
class Subject:
    """A network with weights, and facts about it for the card."""

    space: str
    arch: str
    plan: Plan
    """without an auxiliary tower"""
    weights: dict[str, Tensor]
    about_weights: str
    training: Mapping[str, Any] | None = None
    """identity, epoch and history of a checkpoint"""
    scores: Mapping[str, float] = field(default_factory=dict)
    run: Run | None = None
    """the search that found it"""
    training_section: str = ""
    """replaces the card's section on training"""

    @staticmethod
    def of(
        space: AnySpace,
        arch: Any,
        *,
        num_classes: int | None = None,
        input_shape: Shape | None = None,
        weights: Weights | None = None,
        origin: Origin = Origin(),
        store: Store | None = None,
    ) -> Subject:
        """A network of a space with the given weights, or with initial weights drawn by `origin`.

        Classes and input shape default to those of the checkpoint, then of the space. The store provides its scores,
        and the search that found it.
        """
        if not isinstance(space, Space):
            raise UserError(f"The space '{space.name}' gives modules and no plans: their code cannot be printed.")
        known = {} if weights is None else weights.identity
        native = space.plan(space.smallest())
        classes = num_classes or known.get("num_classes") or native.output_shape[0]
        shape = tuple(input_shape or known.get("input_shape") or native.input_shape)
        text = space.text(arch)
        _check_same(space.name, text, known)
        plan = space.plan(arch, classes, shape)
        if weights is None:
            tensors, about = (
                dict(draw(plan.weights, origin)),
                f"untrained: drawn by {origin.scheme}, seed {origin.seed}",
            )
        else:
            whole = _with_tower(space, arch, classes, shape) if known.get("auxiliary") else plan
            tensors, about = fitting(whole, weights, classes), f"from {weights.name}"
        scores = {} if store is None else _scores(store, space.name, text)
        won = [] if store is None else [run for run in _finished(store) if _winner(run) == (space.name, text)]
        training = None if weights is None else weights.training
        own = {name: tensors[name] for name in plan.weights}
        return Subject(space.name, text, plan, own, about, training, scores, won[-1] if won else None)


def input_names(plan: Plan) -> tuple[str, ...]:
    """The names of the inputs in printed code and ONNX."""
    return ("x",) if len(plan.inputs) == 1 else tuple(plan.nodes[i].name for i in plan.inputs)


def _check_same(space: str, arch: str, known: Mapping[str, Any]) -> None:
    for what, given in (("space", space), ("arch", arch)):
        if known.get(what, given) != given:
            raise UserError(f"The weights are of {what} '{known[what]}', not of '{given}': leave --{what} out.")


def _with_tower(space: Space, arch: Any, num_classes: int, shape: Shape) -> Plan:
    plan: Callable[..., Plan] = space.plan
    more = {"auxiliary": True} if "auxiliary" in inspect.signature(space.plan).parameters else {}
    return plan(arch, num_classes, shape, **more)


def _scores(store: Store, space: str, arch: str) -> dict[str, float]:
    """The store's scores of a network by proxy; the last one if it was scored on several batches."""
    rows = (row for row in store.all_scores() if (row.space, row.arch, row.status) == (space, arch, "ok"))
    return {row.proxy: row.value for row in rows if row.value is not None}


def best_of(path: Path, store: Store) -> tuple[str, str]:
    """Space and architecture of the winner of the last finished search."""
    finished = _finished(store)
    if not finished:
        raise StoreError(
            f"The store '{path}' has no winner to export: it holds no finished search. Finish one, or give --arch."
        )
    return _winner(finished[-1])


def _finished(store: Store) -> list[Run]:
    return [run for run in store.runs() if run.kind == "search" and run.result is not None and run.result.get("best")]


def _winner(run: Run) -> tuple[str, str]:
    assert run.result is not None
    return str(run.settings["space"]), str(run.result["best"])
