"""Search spaces: architectures as values, with their text, their neighbours and their networks.

A space gives its networks as plans (`Space`) or as modules (`ModuleSpace`). Plans are counted without building
anything, drawn and printed as code; modules may hold any layers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from epochzero.errors import UserError
from epochzero.types import Shape

if TYPE_CHECKING:
    from torch import nn

    from epochzero.plan import Plan


def described(space: Any) -> str:
    """A space in a few words: its name, and how many networks it has if it knows."""
    if not hasattr(space, "count"):
        return f"<Space {space.name}>"
    count = space.count()
    return f"<Space {space.name} of {f'{count:,}' if count < LARGEST_SHOWN else f'{count:.2g}'} networks>"


LARGEST_SHOWN = 10**9
"""numbers of networks up to this are shown to the last digit"""


class Architectures(Protocol):
    """The methods that every space has. An architecture is any hashable value."""

    def __repr__(self) -> str:
        return described(self)

    name: str

    def parse(self, text: str) -> Any:
        """Returns the architecture that a text describes; UserError if it describes none."""

    def text(self, arch: Any) -> str:
        """Returns the community's text for an architecture; `parse` inverts it exactly."""

    def sample(self, rng: Random) -> Any:
        """Draws an architecture uniformly."""

    def mutate(self, arch: Any, rng: Random) -> Any:
        """Draws a neighbour uniformly."""
        return rng.choice(self.neighbours(arch))

    def neighbours(self, arch: Any) -> list[Any]:
        """Returns every architecture one change away."""

    def smallest(self) -> Any:
        """Returns an architecture with the fewest parameters and multiply-accumulates."""


@runtime_checkable
class GivesPlans(Protocol):
    """The method that a `Space` has and a `ModuleSpace` lacks."""

    def plan(self, arch: Any, num_classes: int = ..., input_shape: Shape = ...) -> Plan:
        """Returns the network as data."""


@runtime_checkable
class Space(Architectures, GivesPlans, Protocol):
    """A space whose networks are plans."""

    @property
    def cell_block(self) -> str | tuple[str, ...]:
        """The block of the plan to draw as the cell, or several blocks; empty for the whole network."""


class ModuleSpace(Architectures, Protocol):
    """A space whose networks are modules, scored one at a time."""

    def build(self, arch: Any, *args: Any, **kwargs: Any) -> nn.Module:
        """Returns a new module: `build(arch)`, with `num_classes`, `input_shape` or both if it has such arguments.

        Random weights come from the global random states, which are seeded.
        """


T = TypeVar("T")
AnySpace: TypeAlias = Space | ModuleSpace
NEEDED = ("name", "parse", "text", "sample", "mutate", "neighbours", "smallest")


class Measured(Protocol):
    """The size of a plan or of a built network, against which budgets are checked."""

    @property
    def params(self) -> int: ...

    @property
    def flops(self) -> int: ...


def native_of(space: object) -> tuple[Shape, int] | None:
    """Returns the input shape and the number of classes that a space was made for; None if it does not say.

    Plans say it by their defaults, a space of modules by an attribute `native`.
    """
    if isinstance(space, GivesPlans):
        plan = space.plan(space.smallest())  # type: ignore[attr-defined]
        return plan.input_shape, plan.output_shape[-1]
    return getattr(space, "native", None)


def fitting_arguments(function: Callable[..., Any], values: dict[str, Any]) -> dict[str, Any]:
    """Returns those of the values that the function takes by name."""
    try:
        takes = inspect.signature(function).parameters
    except ValueError:  # some functions in C do not say
        return {}
    return {name: value for name, value in values.items() if name in takes}


def check_complete(space: object) -> None:
    """Raises UserError for a space that lacks a method of `Architectures`."""
    lacks = [member for member in NEEDED if not hasattr(space, member)]
    if not hasattr(space, "plan") and not hasattr(space, "build"):
        lacks.append("plan (or build)")
    if hasattr(space, "plan") and not hasattr(space, "cell_block"):
        lacks.append("cell_block")
    if lacks:
        called = getattr(space, "name", type(space).__name__)
        raise UserError(f"The space '{called}' lacks {', '.join(lacks)}: see epochzero.spaces.base.")


def check_classes(space: str, num_classes: int) -> None:
    """Raises UserError for a classifier without outputs."""
    if num_classes < 1:
        raise UserError(f"{space} needs at least 1 class, not {num_classes}.")


def check_images(space: str, num_classes: int, shape: Shape, example: str) -> None:
    """Raises UserError for a classifier without outputs, or for an input that is not an image CxHxW."""
    check_classes(space, num_classes)
    if len(shape) != 3 or min(shape) < 1:
        raise UserError(f"{space} takes images CxHxW, such as {example}, not {'x'.join(map(str, shape))}.")


def replaced(values: tuple[T, ...], place: int, value: T) -> tuple[T, ...]:
    """Returns the tuple with another value at a place."""
    return (*values[:place], value, *values[place + 1 :])


@lru_cache(maxsize=1024)
def pooled_classifier(num_classes: int, shape: Shape) -> Plan:
    """The mean over space and a linear classifier."""
    from epochzero.plan import chain
    from epochzero.plan.ops.linear import Linear
    from epochzero.plan.ops.pool import GlobalAvgPool

    return chain(shape, pool=GlobalAvgPool(), linear=Linear(num_classes))


def quoted(given: object) -> str:
    """Returns user input for a message, shortened, with quotes around text."""
    text = given if isinstance(given, str) else repr(given)
    short = text if len(text) <= 80 else text[:77] + "..."
    return repr(short) if isinstance(given, str) else short
