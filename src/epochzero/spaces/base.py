"""What a search space is: architectures as values, with their text, their neighbours and their plan."""

from __future__ import annotations

from random import Random
from typing import Any, Protocol, runtime_checkable

from epochzero.plan import Plan
from epochzero.types import Shape


@runtime_checkable
class Space(Protocol):
    """The methods that every space has. An architecture is a hashable value of the space's own kind."""

    name: str
    cell_block: str
    """the block of the plan to draw when people ask for the cell; empty for the whole network"""

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

    def plan(self, arch: Any, num_classes: int = ..., input_shape: Shape = ...) -> Plan:
        """The network as data."""
