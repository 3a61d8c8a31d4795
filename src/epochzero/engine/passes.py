"""What a proxy asks for: runs of the network (`Pass`) and what it wants to see of each (`need`).

Equal passes run once, however many proxies ask. Within a pass, one forward run serves every read, and each
kind of gradient is computed once.

    layers              each layer's output, as the network runs: a function maps it to something small
    blocks              the output of each top-level block of the network, likewise
    relus               the input of each ReLU, likewise
    norms               the input of each batch norm, likewise
    features            the last feature map: the last output of a layer that has channels and positions, likewise
    layer_gradients     each conv and linear layer with the loss gradient of its output, likewise
    block_gradients     for each two blocks in a row that give feature maps, what arrives at the output of the first of
                        random signs at that of the second, and those signs, likewise
    logits, loss        the output, and its mean cross-entropy with the labels (binary where there is a single logit)
    labels              of the pass's samples
    weights             of conv and linear layers, in the network's order
    gradients           of the loss, for those weights (zeros where the loss does not depend on one; where all are zero,
                        neither these nor `layer_gradients` nor `hessian_gradients` can be had)
    parameters          everything trainable, biases and norms too, in the network's order, and the loss gradients of
    parameter_gradients that
    kernel_loss         [B, B] inner products of the samples' gradients over everything trainable: of each sample's
    kernel_label        loss; of the logit of its label, or of its single logit; of the sum of its logits
    kernel_sum
    kernel_outputs      the same for every single logit: [B*K, B*K]
    hessian_gradients   H g for those weights, with g as above and H the Hessian of the loss
    log_gradients       of log sum(logits), for those weights
    input_gradients     of sum(logits), for each sample; none where they are no more than rounding
    velocity            first and second derivative of the logits along the circle on which the inputs lie
    acceleration
    params, flops       counts
    seed                of the weights' origin, for what a proxy draws itself
    network             the network itself and the pass's inputs, for what fits no pass
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from epochzero.types import Shape

if TYPE_CHECKING:
    from torch import Tensor

    from epochzero.plan.ops.base import Kind

Norm = Literal["train", "eval", "off"]
"""How batch norms act: on the batch's statistics, on the remembered ones, or not at all. Never tracked."""

FACTS = frozenset({"flops", "params", "seed"})
"""what is known without a run"""
IN_PASSING = frozenset({"layers", "blocks", "relus", "norms", "features"})
"""streams that the forward run feeds"""
STREAMS = IN_PASSING | {"layer_gradients", "block_gradients"}
KERNELS = frozenset({"kernel_loss", "kernel_label", "kernel_sum", "kernel_outputs"})
READS = (
    FACTS
    | STREAMS
    | KERNELS
    | {
        "acceleration",
        "gradients",
        "hessian_gradients",
        "input_gradients",
        "labels",
        "log_gradients",
        "logits",
        "loss",
        "network",
        "parameter_gradients",
        "parameters",
        "velocity",
        "weights",
    }
)
NEED_LABELS = frozenset(
    {"loss", "labels", "gradients", "parameter_gradients", "hessian_gradients", "layer_gradients"}
    | {"kernel_loss", "kernel_label"}
)


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
        if name not in READS or (name in STREAMS) != (function is not None):
            raise ValueError(f"'{name}' cannot be read so; see epochzero.engine.passes")
    return Need(run, wanted)
