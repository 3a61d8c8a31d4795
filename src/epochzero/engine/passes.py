"""The requests of a proxy: runs of the network (`Pass`), and what it reads of each (`need`).

Equal passes run once, however many proxies ask. Within a pass, one forward run serves every read, and each kind of
gradient is computed once. `epochzero.engine.reads` holds the table of reads; those of layers, blocks and feature maps
are streams, which are given with a function that maps each item to something small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, get_args

from epochzero.engine.reads import DESCRIBED, NAMES, STREAMS
from epochzero.registry import near_miss
from epochzero.types import Shape

if TYPE_CHECKING:
    from torch import Tensor

    from epochzero.plan.ops.base import Kind

__doc__ = f"{__doc__}\n{DESCRIBED}\n"

Norm = Literal["train", "eval", "off"]
"""The mode of batch norms: the batch's statistics, the running ones, or no norm. Running statistics never change."""

Feed = Literal["batch", "ones", "noise", "circle"]
"""The inputs: a part of the data; one sample of ones; N(0, 1) of the data's shape; points spaced evenly on a random
circle."""

Signs = Literal["as_is", "absolute"]
"""The weights as they are, or their absolute values."""

Precision = Literal["float32", "float64"]

Item = tuple[str, Callable[..., Any] | None]
"""A read, and for a stream the function that is mapped over it."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One run of the network: its inputs, weights, mode of batch norms and precision."""

    inputs: Feed = "batch"
    part: int = 0
    """the part of the data, by its number"""
    only: tuple[int, int] | None = None
    """the range of its samples, or of the points on the circle, to use: first, end"""
    fewer: bool = False
    """true if a part with fewer samples will do"""
    points: int = 4
    """the number of points on the circle"""
    radius: float = 1.0
    """the circle's radius is sqrt(N * radius) with N the number of inputs of a sample"""
    draw: int = 0
    """the number of the draw of circles, noise and initialisations"""
    nudge: float = 0.0
    """the scale of the N(0, 1) noise that is added to the inputs"""
    init: str = ""
    """the scheme of new weights that replace the network's own"""
    weights: Signs = "as_is"
    norm: Norm = "train"
    dtype: Precision = "float32"

    def samples(self, size: int) -> int:
        """Returns the number of samples that run, for a batch of this size; a point on a circle counts three times."""
        if self.inputs == "circle":
            return 3 * (self.points if self.only is None else self.only[1] - self.only[0])
        if self.inputs == "ones":
            return 1
        count = size if self.only is None else self.only[1] - self.only[0]
        return min(count, size) if self.fewer else count


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
    many: Callable[..., Any] | None = None,
    spread: bool = False,
    onto: Callable[..., Any] | None = None,
    staged: tuple[Callable[..., Any], Callable[..., Any]] | None = None,
) -> Callable[[F], F]:
    """Attaches to a stream's function one that does the same for many networks at once, where `vmap` would be slow.

    `many` takes tensors [B, M, ...] of M networks and returns a tensor [M, ...]. For values that are summed over layers
    (`Summed`), `onto(total, networks, owners, maps)` adds the values of the maps to their owners' rows of the total,
    which is None at first, and returns the total [networks, ...], or None for maps that have no value. With `spread`,
    both also accept maps in an arena (`epochzero.engine.gpu.routine_run.ScatteredMaps`), and pass them to
    `epochzero.engine.population.reductions`.

    `staged` is `many` in two steps: the first gives a small tensor [B, M, ...] and a number or None, the second takes
    them, of several layers joined along the second axis, and returns the tensor [M, ...].
    """

    def mark(function: F) -> F:
        function.of_many, function.onto, function.takes_spread = many, onto, spread  # type: ignore[attr-defined]
        function.staged = staged  # type: ignore[attr-defined]
        return function

    return mark


def in_lists(many: Callable[..., Sequence[Any]]) -> Callable[[F], F]:
    """Attaches to a function of a layer's tensors one that takes lists, with a tensor of each layer, and returns one.

    Where launches count it takes few for all layers, as `epochzero.engine.foreach` does.
    """

    def mark(function: F) -> F:
        function.of_lists = many  # type: ignore[attr-defined]
        return function

    return mark


def adds_onto(function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """Returns the `onto` that `together` attached to a summed stream's function, or None."""
    return getattr(_inner(function), "onto", None) if isinstance(function, Summed) else None


def of_many(function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """Returns the `many` that `together` attached to a stream's function, or None."""
    return getattr(_inner(function), "of_many", None)


def staged(function: Callable[..., Any] | None) -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    """Returns the two steps that `together` attached to a stream's function, or None."""
    return getattr(_inner(function), "staged", None)


def takes_spread(function: Callable[..., Any] | None) -> bool:
    """Returns True if the function accepts maps in an arena."""
    return getattr(_inner(function), "takes_spread", False)


def _inner(function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    return function.function if isinstance(function, Summed) else function


@dataclass(frozen=True)
class Summed:
    """A stream's function whose values are summed over the layers as the network runs: one value is kept."""

    function: Callable[..., Any]

    def __call__(self, *given: Any) -> Any:
        return self.function(*given)


class Need(NamedTuple):
    """A pass and its reads; a stream has the function that is applied to each of its items."""

    run: Pass
    reads: Mapping[str, Callable[..., Any] | None]


CHOICES = {"inputs": get_args(Feed), "weights": get_args(Signs), "norm": get_args(Norm), "dtype": get_args(Precision)}


def need(run: Pass = Pass(), *reads: str, **streams: Callable[..., Any]) -> Need:
    """Returns a need: `need(Pass(), "weights", layers=gram)` reads the weights, and `gram(output)` of each layer.

    With `layers=Summed(gram)` it reads a list that holds only their sum.
    """
    wanted: dict[str, Callable[..., Any] | None] = {**dict.fromkeys(reads), **streams}
    for field, choices in CHOICES.items():
        if (value := getattr(run, field)) not in choices:
            raise ValueError(
                f"A pass cannot have {field}={value!r}.{near_miss(value, list(choices))} Known: {', '.join(choices)}."
            )
    for name, function in wanted.items():
        if name not in NAMES:
            raise ValueError(
                f"There is no read '{name}'.{near_miss(name, sorted(NAMES))} epochzero.engine.reads lists all."
            )
        if name in STREAMS and function is None:
            raise ValueError(f"'{name}' needs a function of each of its items: need(Pass(), {name}=function).")
        if name not in STREAMS and function is not None:
            raise ValueError(f"'{name}' takes no function: need(Pass(), \"{name}\").")
    return Need(run, wanted)


def merged(needs: Iterable[Need]) -> dict[Pass, list[Item]]:
    """The distinct passes that these needs ask for, each with everything that is read of it."""
    passes: dict[Pass, dict[Item, None]] = {}
    for run, reads in needs:
        passes.setdefault(run, {}).update(dict.fromkeys(reads.items()))
    return {run: list(items) for run, items in passes.items()}
