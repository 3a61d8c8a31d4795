r"""One set of weights for all architectures of a space, trained one path at a time.

An architecture is one option for each of a few decisions. One relaxed plan contains all options, and a path is the part
that one architecture uses, so that two architectures share the weights of their common parts. Paths are drawn
uniformly: every option of a decision is trained equally often in expectation.

    network = shared(spaces["nb201"], 10, (3, 32, 32))
    picks = network.uniform(rng)                         the number of the option of each decision
    weights = SharedWeights(network, network.draw(seed=0))
    weights.predict(picks, x)                            probabilities [B, classes]
    weights.inherited(network.decode(picks))             weights of `network.alone(arch)`, by its own names

Running statistics of norms are not specific to a path, so predictions use the statistics of their batch.

Shu, Chen, Dai, Low. Neural ensemble search via Bayesian sampling. UAI 2022. arXiv:2109.02533
Guo et al. Single path one-shot neural architecture search with uniform sampling. ECCV 2020. arXiv:1904.00420
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, singledispatch
from typing import Any

import torch
from torch import Generator, Tensor

from epochzero.errors import UserError
from epochzero.plan import Plan, execute
from epochzero.plan.init import draw
from epochzero.plan.ops.norm import Statistics
from epochzero.spaces.nb201 import NB201, OPS
from epochzero.supernet.relaxed import Choice, Relaxed, relax, supernet
from epochzero.types import Origin, Shape

Picks = tuple[int, ...]
"""For each decision, the number of the chosen option."""
OPTION = re.compile(r"(\.edge\w+)\.\w+\.")
"""the option in the name of a shared weight, which the name in its own network lacks"""


def own_name(name: str) -> str:
    """Returns the name, in the network of one architecture, of a part of the relaxed plan."""
    return OPTION.sub(r"\1.", name)


@dataclass(frozen=True)
class Decision:
    """One choice of an architecture."""

    name: str
    options: tuple[str, ...]
    vectors: tuple[tuple[float, ...], ...]
    """for each option, the input of the relaxed plan at this decision"""

    @classmethod
    def one_of(cls, choice: Choice) -> Decision:
        """Returns the decision of a choice of one option, with one-hot vectors."""
        rows = torch.eye(len(choice.options)).tolist()
        return cls(choice.name, choice.options, tuple(map(tuple, rows)))


@dataclass(frozen=True, eq=False)
class SinglePath:
    """All networks of a space at one size, with shared weights."""

    relaxed: Plan
    """its inputs: images, then one vector for each decision"""
    decisions: tuple[Decision, ...]
    decode: Callable[[Picks], Any]
    encode: Callable[[Any], Picks]
    """inverts `decode` for the decisions that matter to the architecture"""
    alone: Callable[[Any], Plan]
    """the network of one architecture with its own weights"""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """space and size, as plain values"""

    @cached_property
    def _vectors(self) -> list[Tensor]:
        return [torch.tensor(decision.vectors) for decision in self.decisions]

    @cached_property
    def path(self) -> Callable[[Picks, Statistics], Plan]:
        """`path(picks, statistics)`: the network of one architecture, its weights named as in the relaxed plan."""

        @lru_cache
        def everything(statistics: Statistics) -> Relaxed:
            return Relaxed(self.relaxed.with_statistics(statistics), (), lambda picks: None)

        @lru_cache(maxsize=64)
        def one(picks: Picks, statistics: Statistics) -> Plan:
            return everything(statistics).network(self.vectors(picks))

        return one

    def vectors(self, picks: Picks) -> list[Tensor]:
        """Returns the inputs of the relaxed plan for these options."""
        return [rows[pick] for rows, pick in zip(self._vectors, picks, strict=True)]

    def uniform(self, rng: Generator) -> Picks:
        """Draws a path with uniform decisions."""
        return tuple(int(torch.randint(len(d.options), (), generator=rng)) for d in self.decisions)

    def draw(self, seed: int, device: str | torch.device = "cpu") -> dict[str, Tensor]:
        """Returns fresh weights, with gradients for the trainable ones."""
        drawn = draw(self.relaxed.weights, Origin(seed=seed))
        return self.placed(drawn, device)

    def placed(self, weights: Mapping[str, Tensor], device: str | torch.device) -> dict[str, Tensor]:
        """Returns a copy of weights on a device."""
        params = self.relaxed.weights
        return {
            name: w.detach().clone().to(device).requires_grad_(params[name].trainable) for name, w in weights.items()
        }


class SharedWeights:
    """The weights of all paths."""

    def __init__(self, network: SinglePath, weights: Mapping[str, Tensor]) -> None:
        self.network, self.weights = network, dict(weights)
        self.history: list[dict[str, float]] = []
        """one record per epoch of training"""

    @property
    def device(self) -> torch.device:
        return next(iter(self.weights.values())).device

    def predict(self, picks: Picks, x: Tensor, size: int = 500) -> Tensor:
        """Returns the probabilities [n, classes] of one path for standardised images x, in batches of a size."""
        plan = self.network.path(picks, "batch")
        with torch.no_grad():
            return torch.cat([execute(plan, self.weights, (part,)).softmax(1) for part in torch.split(x, size)])

    def inherited(self, arch: Any) -> dict[str, Tensor]:
        """Returns copies of the weights of one architecture, by their names in its own network."""
        names = self.network.path(self.network.encode(arch), "batch").weights
        return {own_name(name): self.weights[name].detach().clone() for name in names}


@singledispatch
def shared(
    space: Any, num_classes: int, input_shape: Shape, channels: int = 16, cells: int = 0, partial: int = 1
) -> SinglePath:
    """Returns all networks of a space for this task, with shared weights.

    `cells` is the number of cells in a network (darts) or in each stage (nb201), 0 for the number in the papers. With
    `partial` K, an operation sees 1/K of the channels and the rest skip it (only darts).
    """
    raise UserError(f"The space '{getattr(space, 'name', space)}' has no weight-sharing network: use nb201 or darts.")


@shared.register
def _nb201(
    space: NB201, num_classes: int, input_shape: Shape, channels: int = 16, cells: int = 0, partial: int = 1
) -> SinglePath:
    if partial != 1:
        raise UserError(f"Partial channels are for darts: leave partial at 1 for {space.name}, not {partial}.")
    relaxed = relax(space, num_classes, input_shape, channels, cells)
    alone = supernet(space, num_classes, input_shape, channels, cells).alone
    facts = {"space": space.name, "classes": num_classes, "channels": channels, "cells": cells, "partial": 1}

    def decode(picks: Picks) -> tuple[str, ...]:
        return tuple(OPS[pick] for pick in picks)

    def encode(arch: Sequence[str]) -> Picks:
        return tuple(OPS.index(op) for op in arch)

    return SinglePath(relaxed.plan, tuple(map(Decision.one_of, relaxed.choices)), decode, encode, alone, facts)
