"""Every call of a torch function by a module: reported as layers, and adapted to the pass.

A function mode sees functional networks like modular ones. In-place steps are run out of place, so that what was seen
stays as it was; functions that hide layers are run in the open; batch norms act as the pass says.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from epochzero.engine.modules.decompose import opened
from epochzero.engine.modules.plain_functions import ALWAYS, FOR_TWO_DERIVATIVES
from epochzero.engine.passes import Layer, Norm, Watch
from epochzero.engine.reads import RECTIFIERS

SQUASHERS = ("sigmoid", "hardsigmoid", "logsigmoid", "tanh", "hardtanh", "softsign", "softplus", "hardshrink", "glu")
ACTIVATIONS = frozenset(RECTIFIERS + SQUASHERS)
NORMS = frozenset(["batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm"])
PRODUCTS = frozenset(["matmul", "mm", "bmm", "addmm", "baddbmm", "einsum"])
EMBEDDINGS = frozenset(["embedding", "embedding_bag"])
HIDING = {
    "multi_head_attention_forward": "nn.MultiheadAttention with added keys or without samples",
    "lstm": "an nn.LSTM on packed sequences or with projections",
    "gru": "an nn.GRU on packed sequences",
    "rnn_tanh": "an nn.RNN on packed sequences",
    "rnn_relu": "an nn.RNN on packed sequences",
}
"""functions that hide layers, and when they cannot be rewritten"""

KINDS: dict[str, str] = {
    **dict.fromkeys(["conv1d", "conv2d", "conv3d"], "conv"),
    **dict.fromkeys(["conv_transpose1d", "conv_transpose2d", "conv_transpose3d"], "conv"),
    **dict.fromkeys(["linear", "bilinear"], "linear"),
    **dict.fromkeys(NORMS, "norm"),
    **dict.fromkeys(ACTIVATIONS, "activation"),
    **dict.fromkeys([f"{kind}_pool{n}d" for kind in ("max", "avg") for n in (1, 2, 3)], "pool"),
    **dict.fromkeys([f"adaptive_{kind}_pool{n}d" for kind in ("max", "avg") for n in (1, 2, 3)], "pool"),
    **dict.fromkeys(["scaled_dot_product_attention", "weighted_attention", *HIDING], "attention"),
    "zeros_like": "zero",
}
IN_PLACE = {
    "__iadd__": "__add__",
    "__isub__": "__sub__",
    "__imul__": "__mul__",
    "__itruediv__": "__truediv__",
}


class Use(NamedTuple):
    """The use of one of the module's weights by a call."""

    op: str
    weight: str | None
    """its name; None for a weight that is computed as the network runs"""
    role: str
    """weight [out, in], factor [in, out], scale, bias or embedding; hidden where the op hides its layers"""


class Parts(NamedTuple):
    """The tensors that a layer computes with."""

    x: Tensor
    weight: Tensor
    biases: tuple[Tensor, ...]
    role: str


class Calls(TorchFunctionMode):
    """A function mode that reports each layer to `watch`, and each weight that a call uses to `uses`."""

    def __init__(
        self,
        state: Mapping[str, Tensor],
        norm: Norm,
        watch: Watch | None = None,
        uses: Callable[[Use], None] | None = None,
        twice: bool = False,
        lookups: Callable[[int, Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        """`lookups` gets the number of an embedding, its ids and its output, and returns the output to go on with."""
        super().__init__()
        self.lookups, self.looked = lookups, 0
        self.norm, self.watch, self.uses = norm, watch, uses
        self.spelled_out = ALWAYS | FOR_TWO_DERIVATIVES if twice else ALWAYS
        self.names = {id(tensor): name for name, tensor in state.items()}
        self.counts: dict[str, int] = {}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        name = getattr(func, "__name__", "").removeprefix("_")
        if name.removesuffix("_") in ACTIVATIONS:
            func, args, given, name = _out_of_place(func, name, args, given)
        elif func.__name__ in IN_PLACE:
            return getattr(torch.Tensor, IN_PLACE[func.__name__])(*args, **given)
        if func in ORDERED_OTHERWISE:
            func, args, given = ORDERED_OTHERWISE[func](*args, **given)
        if name in HIDING and (call := opened(name, args, given)) is not None:
            with self:
                return call()
        if self.uses is not None:
            self._report_uses(name, args, given)
        if func in (F.embedding, F.embedding_bag):
            args, given = _looked_up(func, args, given)
        if name == "batch_norm" and self.norm == "off":
            return args[0] if args else given["input"]
        if name == "batch_norm" and self.norm == "train":
            args, given = _on_the_batch(args, given)
        if name in self.spelled_out:
            func = self.spelled_out[name]
            args = (given.pop("input"), *args) if "input" in given else args
        output = func(*args, **given)
        if name in EMBEDDINGS and self.lookups is not None:
            self.looked += 1
            output = self.lookups(self.looked - 1, args[0] if args else given["input"], output)
        told = output[0] if name in KINDS and isinstance(output, tuple) else output
        if self.watch is not None and isinstance(told, Tensor):
            self._tell(name, args, given, told)
        return output

    def _name(self, tensor: Tensor) -> str | None:
        """Returns the name of a weight, also if only a part of it is used."""
        return self.names.get(id(tensor)) or self.names.get(id(tensor._base))

    def _parts(self, name: str, args: tuple[Any, ...], given: Mapping[str, Any]) -> Parts | None:
        """Returns the tensors of a conv or linear layer; a product with a weight is a linear layer."""
        tensors = _tensors(args, given)
        if KINDS.get(name) in ("conv", "linear"):
            place = 2 if name == "bilinear" else 1
            return Parts(tensors[0], tensors[place], tensors[place + 1 :], "weight")
        if name not in PRODUCTS or len(tensors) < 2:
            return None
        *bias, left, right = tensors
        if right.dim() > 1 and self._name(right) is not None:
            return Parts(left, right, tuple(bias), "factor" if id(right) in self.names else "weight")
        if left.dim() > 1 and self._name(left) is not None:
            return Parts(right, left, tuple(bias), "weight")
        return None

    def _tell(self, name: str, args: tuple[Any, ...], given: dict[str, Any], output: Tensor) -> None:
        parts = self._parts(name, args, given)
        kind = KINDS.get(name) or ("linear" if parts else None)
        if name in ("mul", "__mul__", "__rmul__") and any(type(a) in (int, float) and a == 0 for a in args):
            kind = "zero"
        if kind is None or self.watch is None:
            return
        if name == "hardtanh" and not (args[1] if len(args) > 1 else given.get("min_val", -1.0)):
            name = "relu6"  # nn.ReLU6 calls hardtanh from 0 to 6
        inputs = _tensors(args, given)[:1] if parts is None else (parts.x,)
        weight = None if parts is None else self._name(parts.weight)
        self.counts[name] = self.counts.get(name, -1) + 1
        label = weight.rpartition(".")[0] if weight else f"{name}{self.counts[name]}"
        shape = tuple(parts.weight.shape) if parts and weight else ()
        self.watch(Layer(kind, name, label, inputs, output, weight, shape))  # type: ignore[arg-type]

    def _report_uses(self, name: str, args: tuple[Any, ...], given: dict[str, Any]) -> None:
        assert self.uses is not None
        if name in HIDING:
            self.uses(Use(name, None, "hidden"))
        elif (parts := self._parts(name, args, given)) is not None:
            self.uses(Use(name, self._name(parts.weight), parts.role))
            self._report_use(name, "bias", *parts.biases)
        elif name in NORMS:
            bound = inspect.signature(getattr(F, name)).bind(*args, **given).arguments
            self._report_use(name, "scale", bound.get("weight"))
            self._report_use(name, "bias", bound.get("bias"))
        elif name in EMBEDDINGS:
            self._report_use(name, "embedding", *_tensors(args, given))

    def _report_use(self, name: str, role: str, *tensors: Tensor | None) -> None:
        assert self.uses is not None
        for tensor in tensors:
            if tensor is not None and (weight := self._name(tensor)) is not None:
                self.uses(Use(name, weight, role))


def _tensors(args: tuple[Any, ...], given: Mapping[str, Any]) -> tuple[Tensor, ...]:
    """Returns the tensors of a call in order; a weight comes before a bias however they are given."""
    named = sorted(given.items(), key=lambda pair: (not pair[0].startswith("input"), pair[0] == "bias"))
    return tuple(value for value in (*args, *(value for _, value in named)) if isinstance(value, Tensor))


def _out_of_place(
    func: Callable[..., Any], name: str, args: tuple[Any, ...], given: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]:
    """Replaces an activation that would overwrite its input by one that does not."""
    if name.endswith("_"):
        return getattr(F, name[:-1]), args, given, name[:-1]
    try:
        bound = inspect.signature(func).bind(*args, **given)
    except (TypeError, ValueError):
        return func, args, given, name
    if bound.arguments.get("inplace"):
        bound.arguments["inplace"] = False
    return func, bound.args, dict(bound.kwargs), name


Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def _batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float, cudnn: bool
) -> Call:
    return F.batch_norm, (x, mean, var, weight, bias, training, momentum, eps), {}


def _instance_norm(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, own: bool, momentum: float, eps: float, cudnn: bool
) -> Call:
    return F.instance_norm, (x, mean, var, weight, bias, own, momentum, eps), {}


ORDERED_OTHERWISE: dict[Callable[..., Any], Callable[..., Call]] = {
    torch.batch_norm: _batch_norm,
    torch.instance_norm: _instance_norm,
}
"""functions whose arguments are in another order than those of their namesakes"""


def _looked_up(
    func: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments of an embedding with ordinary gradients that does not shorten the rows of its own table."""
    bound = inspect.signature(func).bind(*args, **given)
    bound.arguments["sparse"] = False
    if bound.arguments.get("max_norm") is not None:
        bound.arguments["weight"] = bound.arguments["weight"].clone()
    return bound.args, dict(bound.kwargs)


def _on_the_batch(args: tuple[Any, ...], given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments of a batch norm that uses the batch's statistics and keeps no running ones."""
    bound = inspect.signature(F.batch_norm).bind(*args, **given)
    bound.arguments |= {"running_mean": None, "running_var": None, "training": True}
    return bound.args, dict(bound.kwargs)
