"""What a search space is: architectures as values, with their text, their neighbours and their networks.

A space gives its networks as plans (`Space`) or as any modules (`ModuleSpace`). Plans are counted without building
anything, drawn and printed as code; modules may hold any layers at all.
"""

from __future__ import annotations

from random import Random
from typing import Any, Protocol, TypeAlias, runtime_checkable

from torch import nn

from epochzero.errors import UserError
from epochzero.plan import Plan
from epochzero.types import Shape


class Architectures(Protocol):
    """The methods that every space has. An architecture is a hashable value of the space's own kind."""

    name: str

    def parse(self, text: str) -> Any:
        """The architecture that a text stands for; UserError where it stands for none."""

    def text(self, arch: Any) -> str:
        """The community's text for an architecture; `parse` inverts it exactly."""

    def sample(self, rng: Random) -> Any:
        """An architecture, uniformly."""

    def mutate(self, arch: Any, rng: Random) -> Any:
        """A neighbour, uniformly."""

    def neighbours(self, arch: Any) -> list[Any]:
        """Every architecture one change away."""

    def smallest(self) -> Any:
        """An architecture with the fewest parameters and multiply-accumulates."""


@runtime_checkable
class GivesPlans(Protocol):
    """The part that tells a `Space` from a `ModuleSpace`."""

    def plan(self, arch: Any, num_classes: int = ..., input_shape: Shape = ...) -> Plan:
        """The network as data."""


@runtime_checkable
class Space(Architectures, GivesPlans, Protocol):
    """A space whose networks are plans."""

    @property
    def cell_block(self) -> str | tuple[str, ...]:
        """The block of the plan to draw when people ask for the cell, or several; empty for the whole network."""


class ModuleSpace(Architectures, Protocol):
    """A space whose networks are modules, scored one at a time."""

    def build(self, arch: Any, *args: Any, **kwargs: Any) -> nn.Module:
        """The network: `build(arch)`, or with arguments `num_classes` and `input_shape`, either or both.

        A new module each time; what it draws at random comes from the global random states, which are seeded.
        """


AnySpace: TypeAlias = Space | ModuleSpace
NEEDED = ("name", "parse", "text", "sample", "mutate", "neighbours", "smallest")


class Measured(Protocol):
    """What budgets are checked on: a plan has it, and so has a network that was built."""

    @property
    def params(self) -> int: ...

    @property
    def flops(self) -> int: ...


def check_complete(space: object) -> None:
    """UserError for a space that lacks a method, in the words of `Architectures`."""
    lacks = [member for member in NEEDED if not hasattr(space, member)]
    if not hasattr(space, "plan") and not hasattr(space, "build"):
        lacks.append("plan (or build)")
    if hasattr(space, "plan") and not hasattr(space, "cell_block"):
        lacks.append("cell_block")
    if lacks:
        called = getattr(space, "name", type(space).__name__)
        raise UserError(f"The space '{called}' lacks {', '.join(lacks)}: see epochzero.spaces.base for what it is.")


def check_classes(space: str, num_classes: int) -> None:
    """UserError for a classifier without outputs."""
    if num_classes < 1:
        raise UserError(f"{space} tells at least 1 class from the others, not {num_classes}: give a larger number.")


def quoted(given: object) -> str:
    """What was given, shortened for a message; text in quotes."""
    text = given if isinstance(given, str) else repr(given)
    short = text if len(text) <= 80 else text[:77] + "..."
    return repr(short) if isinstance(given, str) else short
