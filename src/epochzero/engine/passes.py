"""The requests of a proxy: runs of the network (`Pass`), and what it reads of each (`need`).

Equal passes run once, however many proxies ask. Within a pass, one forward run serves every read, and each kind of
gradient is computed once. `epochzero.engine.reads` holds the table of reads; those of layers, blocks and feature maps
are streams, which are given with a function that maps each item to something small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from epochzero.engine.reads import NAMES, STREAMS, described
from epochzero.types import Shape

if TYPE_CHECKING:
    from torch import Tensor

    from epochzero.plan.ops.base import Kind

__doc__ = f"{__doc__}\n{described()}\n"

Norm = Literal["train", "eval", "off"]
"""How batch norms act: on the batch's statistics, on the remembered ones, or not at all. Never tracked."""

Item = tuple[str, Callable[..., Any] | None]
"""A read, and for a stream the function that is mapped over it."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One run of the network: what goes in, with which weights, how norms act, how precisely."""

    inputs: Literal["batch", "ones", "noise", "circle"] = "batch"
    """a part of the data; one sample of ones; N(0, 1) of the data's shape; points spaced evenly on a random circle"""
    part: int = 0
    """which part of the data"""
    only: tuple[int, int] | None = None
    """only these samples of it: from, to"""
    points: int = 4
    """how many points on the circle"""
    radius: float = 1.0
    """the circle's radius is sqrt(N * radius) with N the number of inputs of a sample"""
    draw: int = 0
    """which of the random circles, noises and initialisations"""
    nudge: float = 0.0
    """the inputs are moved by N(0, 1) times this"""
    init: str = ""
    """weights drawn anew by this scheme, in place of the network's own"""
    weights: Literal["as_is", "absolute"] = "as_is"
    norm: Norm = "train"
    dtype: Literal["float32", "float64"] = "float32"

    def samples(self, size: int) -> int:
        """How many samples run, of a batch of this size; those on a circle count with their two derivatives."""
        if self.inputs == "circle":
            return 3 * self.points
        if self.inputs == "ones":
            return 1
        return size if self.only is None else self.only[1] - self.only[0]


class Layer(NamedTuple):
    """One layer as it runs."""

    kind: Kind | Literal["attention", "block"]
    op: str
    """the operation in small letters, e.g. `relu`"""
    name: str
    inputs: tuple[Tensor, ...]
    output: Tensor
    weight: str | None = None
    """the name of its weight, for conv and linear layers"""
    weight_shape: Shape = ()


Watch = Callable[[Layer], None]


F = TypeVar("F", bound=Callable[..., Any])


def together(
    many: Callable[..., Any] | None = None, spread: bool = False, onto: Callable[..., Any] | None = None
) -> Callable[[F], F]:
    """Marks a stream's function with one that does the same for many networks at once, where `vmap` would be slow.

    `many` takes tensors [B, M, ...], those of M networks side by side, and gives a tensor [M, ...]. For values that are
    added up (`Summed`), `onto(total, networks, owners, maps)` adds those of the maps to their owners' rows of the
    total, which is None at first, and gives the total [networks, ...]; or None for maps that have no value. With
    `spread`, they also take maps where they lie (`epochzero.engine.gpu.routine_run.ScatteredMaps`), and hand them to
    `epochzero.engine.population.reductions`.
    """

    def mark(function: F) -> F:
        function.of_many, function.onto, function.takes_spread = many, onto, spread  # type: ignore[attr-defined]
        return function

    return mark


def adds_onto(function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """What `together` says of adding up."""
    return getattr(_inner(function), "onto", None) if isinstance(function, Summed) else None


def of_many(function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """What `together` says of a stream's function."""
    return getattr(_inner(function), "of_many", None)


def takes_spread(function: Callable[..., Any] | None) -> bool:
    return getattr(_inner(function), "takes_spread", False)


def _inner(function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    return function.function if isinstance(function, Summed) else function


@dataclass(frozen=True)
class Summed:
    """A stream's function whose values are added up over the layers as they come: one value is kept, not one each."""

    function: Callable[..., Any]

    def __call__(self, *given: Any) -> Any:
        return self.function(*given)


class Need(NamedTuple):
    """A pass, and what is read of it; streams come with the function that is applied to each item."""

    run: Pass
    reads: Mapping[str, Callable[..., Any] | None]


def need(run: Pass = Pass(), *reads: str, **streams: Callable[..., Any]) -> Need:
    """`need(Pass(), "weights", layers=gram)` reads the weights, and `gram(output)` of each layer.

    With `layers=Summed(gram)` it reads a list of their sum alone.
    """
    wanted: dict[str, Callable[..., Any] | None] = {**dict.fromkeys(reads), **streams}
    for name, function in wanted.items():
        if name not in NAMES or (name in STREAMS) != (function is not None):
            raise ValueError(f"'{name}' cannot be read so; see epochzero.engine.reads")
    return Need(run, wanted)


def merged(needs: Iterable[Need]) -> dict[Pass, list[Item]]:
    """The distinct passes that these needs ask for, each with everything that is read of it."""
    passes: dict[Pass, dict[Item, None]] = {}
    for run, reads in needs:
        passes.setdefault(run, {}).update(dict.fromkeys(reads.items()))
    return {run: list(items) for run, items in passes.items()}
