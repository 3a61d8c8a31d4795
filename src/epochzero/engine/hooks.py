"""Anybody's `nn.Module` as a network: watched with a function mode, left exactly as it was.

A function mode sees every call of a torch function, so functional networks are watched like modular ones. Module
hooks are used only for what calls no function: `nn.Identity`, and blocks. Weights and buffers are passed in, never
written; training flags and the global random state are put back, also after an error.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from epochzero.data import Batch
from epochzero.engine.failure import PassFailedError, blaming
from epochzero.engine.network import runs_faster_channels_last
from epochzero.engine.passes import Layer, Norm, Watch
from epochzero.errors import UserError
from epochzero.plan import draw
from epochzero.plan.ops.base import Jet, Param
from epochzero.types import Origin

KINDS: dict[str, str] = {
    **dict.fromkeys(["conv1d", "conv2d", "conv3d"], "conv"),
    **dict.fromkeys(["conv_transpose1d", "conv_transpose2d", "conv_transpose3d"], "conv"),
    **dict.fromkeys(["linear", "bilinear"], "linear"),
    **dict.fromkeys(["batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm"], "norm"),
    **dict.fromkeys(["relu", "relu6", "leaky_relu", "prelu", "elu", "selu", "celu", "gelu", "silu"], "activation"),
    **dict.fromkeys(["mish", "softplus", "hardswish", "hardsigmoid", "hardtanh", "sigmoid", "tanh"], "activation"),
    **dict.fromkeys([f"{kind}_pool{n}d" for kind in ("max", "avg") for n in (1, 2, 3)], "pool"),
    **dict.fromkeys([f"adaptive_{kind}_pool{n}d" for kind in ("max", "avg") for n in (1, 2, 3)], "pool"),
    **dict.fromkeys(["scaled_dot_product_attention", "multi_head_attention_forward"], "attention"),
    "zeros_like": "zero",
}
IN_PLACE = {
    "__iadd__": "__add__",
    "__isub__": "__sub__",
    "__imul__": "__mul__",
    "__itruediv__": "__truediv__",
}


class ModuleNetwork:
    """A user's module with the weights that it has."""

    def __init__(
        self,
        module: nn.Module,
        batch: Batch,
        seed: int = 0,
        output: Callable[[Any], Tensor] | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        if isinstance(module, torch.jit.ScriptModule):
            raise UserError("A module compiled by torch.jit cannot be watched: give the one that it was made from.")
        self.module = module
        self.seed = seed
        self.output = output
        self._sample = batch.part(0)[0][:2].to(device)
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        for name, tensor in tensors.items():
            if nn.parameter.is_lazy(tensor):
                raise UserError(f"The module's '{name}' has no shape yet: run the module once on a batch of data.")
        self.weights = {name: tensor.detach().to(device) for name, tensor in tensors.items()}
        self._places = _places(module, {id(tensor): name for name, tensor in tensors.items()})
        self.trainable = tuple(name for name, p in module.named_parameters() if p.requires_grad)

    @cached_property
    def layer_weights(self) -> tuple[str, ...]:
        """Found by running the module once and seeing which weights its conv and linear layers use."""
        seen: dict[str, None] = {}

        def see(layer: Layer) -> None:
            if layer.weight is not None:
                seen[layer.weight] = None

        with torch.no_grad():
            self._try(see)
        return tuple(seen)

    @property
    def params(self) -> int:
        return sum(self.weights[name].numel() for name in self.trainable)

    @cached_property
    def flops(self) -> int:
        """Multiply-accumulates, counted on the meta device: the one place where torch counts attention right."""
        weights = {name: _single(w.to("meta")) for name, w in self.weights.items()}
        counter = FlopCounterMode(display=False)
        with counter, torch.no_grad():
            self.forward(self._sample[:1].to("meta"), weights, "eval")
        return counter.get_total_flops() // 2

    @cached_property
    def hides(self) -> str:
        """`nn.MultiheadAttention` runs its projections where no function mode sees them."""
        seen = False

        def see(layer: Layer) -> None:
            nonlocal seen
            seen = seen or layer.op == "multi_head_attention_forward"

        with torch.no_grad():
            self._try(see)
        words = "nn.MultiheadAttention hides its projections' weights: write them as linear layers"
        return words if seen else ""

    def _try(self, see: Watch) -> None:
        self.forward(self._sample, {name: _single(w) for name, w in self.weights.items()}, "train", see)

    @cached_property
    def _takes_channels_last(self) -> bool:
        """Whether it runs on such inputs; `x.view(...)` in its forward refuses them."""
        x = self._sample.contiguous(memory_format=torch.channels_last)
        weights = {name: _single(w) for name, w in self.weights.items()}
        try:
            with torch.no_grad():
                self._forward(x, weights, "train", None, blocks=False, twice=False)
        except PassFailedError:
            return False
        return True

    def redrawn(self, origin: Origin) -> Mapping[str, Tensor]:
        """Conv and linear weights drawn by the scheme, biases zero, norms at scale 1; the rest stays as it is."""
        weights = dict(self.weights)
        for name in self.trainable:
            old = weights[name]
            if name in self.layer_weights:
                space = old[0, 0].numel() if old.dim() > 2 else 1
                spec = Param(tuple(old.shape), "weight", old.shape[1] * space, old.shape[0] * space)
            elif old.dim() == 1:
                spec = Param(tuple(old.shape), "zero" if name.endswith("bias") else "one")
            else:
                continue
            weights[name] = draw({name: spec}, origin)[name].to(old.device)
        return weights

    def forward(
        self,
        x: Tensor,
        weights: Mapping[str, Tensor],
        norm: Norm,
        watch: Watch | None = None,
        blocks: bool = False,
    ) -> Tensor:
        if runs_faster_channels_last(x) and self._takes_channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        return self._forward(x, weights, norm, watch, blocks, twice=False)

    def _forward(
        self,
        x: Tensor,
        weights: Mapping[str, Tensor],
        norm: Norm,
        watch: Watch | None,
        blocks: bool,
        twice: bool,
    ) -> Tensor:
        state = {name: w if name in self.trainable else w.clone() for name, w in weights.items()}
        with (
            _borrowed(self.module, norm, self.seed),
            _Watching(self.module, state, norm, watch, blocks, twice),
            blaming("the module's forward"),
        ):
            placed = {place: state[name] for place, name in self._places.items()}
            output = functional_call(self.module, placed, (x,), tie_weights=False)
        if self.output is not None:
            with blaming("output="):
                output = self.output(output)
        if not isinstance(output, Tensor):
            raise PassFailedError(
                f"the module returns {type(output).__name__}, not a tensor: say which part is meant with output="
            )
        return output

    def jet(self, x: Jet, weights: Mapping[str, Tensor], norm: Norm) -> Jet:
        """By nested forward-mode derivatives of the curve x + t v + t^2/2 a at t = 0.

        Torch's own norms keep the statistics fixed in the second derivative, which is wrong (checked against
        finite differences, torch 2.13), so they are spelled out for it.
        """
        value, velocity, acceleration = x

        def along(t: Tensor) -> Tensor:
            x = value + t * velocity + t * t / 2 * acceleration
            return self._forward(x, weights, norm, None, blocks=False, twice=True)

        def moving(t: Tensor) -> Any:
            return jvp(along, (t,), (torch.ones_like(t),))

        start = torch.zeros((), dtype=value.dtype, device=value.device)
        try:
            (out, first), (_, second) = jvp(moving, (start,), (torch.ones_like(start),))  # type: ignore[misc]
        except NotImplementedError as error:
            reason = str(error).splitlines()[0]
            raise PassFailedError(f"the module has no second forward-mode derivative: {reason}") from error
        return out, first, second


def _single(weight: Tensor) -> Tensor:
    """In single precision; whole numbers, such as those of an index, stay what they are."""
    return weight.float() if weight.is_floating_point() else weight


def _places(module: nn.Module, names: Mapping[int, str]) -> dict[str, str]:
    """Every place that holds a weight, once, with the weight's name; a shared weight has several places.

    `functional_call` finds them itself, but it takes a part that has two names for two, and then leaves our tensors
    in the user's module (torch 2.13).
    """
    return {
        f"{prefix}.{leaf}" if prefix else leaf: names[id(tensor)]
        for prefix, part in module.named_modules()
        for leaf, tensor in (*part._parameters.items(), *part._buffers.items())
        if tensor is not None
    }


@contextmanager
def _borrowed(module: nn.Module, norm: Norm, seed: int) -> Iterator[None]:
    """The module in the mode that the pass wants, randomness seeded; everything put back afterwards."""
    flags = [(part, part.training) for part in module.modules()]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            for part, _ in flags:
                part.training = norm != "eval"
            yield
        finally:
            for part, flag in flags:
                part.training = flag


class _Watching(TorchFunctionMode):
    """Sees every torch function; turns batch norms as the pass wants, and in-place steps into ordinary ones."""

    def __init__(
        self,
        module: nn.Module,
        state: Mapping[str, Tensor],
        norm: Norm,
        watch: Watch | None,
        blocks: bool,
        twice: bool,
    ) -> None:
        super().__init__()
        self.module, self.norm, self.watch, self.blocks, self.twice = module, norm, watch, blocks, twice
        self.names = {id(tensor): name for name, tensor in state.items()}
        self.hooks: list[torch.utils.hooks.RemovableHandle] = []
        self.counts: dict[str, int] = {}

    def __enter__(self) -> _Watching:
        super().__enter__()  # type: ignore[no-untyped-call]
        if self.watch is not None:
            for name, part in self.module.named_modules():
                if isinstance(part, nn.Identity):
                    self._hook(part, name, "identity", "identity")
                elif self.blocks and (name == "" or next(part.children(), None) is not None):
                    self._hook(part, name, "block", "block")
        return self

    def __exit__(self, *error: Any) -> None:
        for hook in self.hooks:
            hook.remove()
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def _hook(self, part: nn.Module, name: str, kind: Any, op: str) -> None:
        def ran(_: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            if isinstance(output, Tensor) and self.watch is not None:
                self.watch(Layer(kind, op, name, inputs, output))

        self.hooks.append(part.register_forward_hook(ran))

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        name = getattr(func, "__name__", "").removeprefix("_")
        if name.removesuffix("_") in KINDS and KINDS[name.removesuffix("_")] == "activation":
            func, args, given, name = _out_of_place(func, name, args, given)
        elif func.__name__ in IN_PLACE:
            return getattr(torch.Tensor, IN_PLACE[func.__name__])(*args, **given)
        if name == "batch_norm" and self.norm == "off":
            return args[0] if args else given["input"]
        if name == "batch_norm" and self.norm == "train":
            args, given = _on_the_batch(args, given)
        if self.twice and name in SPELLED_OUT:
            func = SPELLED_OUT[name]
        output = func(*args, **given)
        told = output[0] if name in KINDS and isinstance(output, tuple) else output
        if self.watch is not None and isinstance(told, Tensor):
            self._tell(name, args, given, told)
        return output

    def _tell(self, name: str, args: tuple[Any, ...], given: dict[str, Any], output: Tensor) -> None:
        kind = KINDS.get(name)
        if name in ("mul", "__mul__", "__rmul__") and any(type(a) in (int, float) and a == 0 for a in args):
            kind = "zero"
        if kind is None or self.watch is None:
            return
        tensors = tuple(value for value in (*args, *given.values()) if isinstance(value, Tensor))
        weight = None
        if kind in ("conv", "linear"):
            weight = next((self.names[id(t)] for t in tensors[1:2] if id(t) in self.names), None)
        self.counts[name] = self.counts.get(name, -1) + 1
        label = weight.rpartition(".")[0] if weight else f"{name}{self.counts[name]}"
        shape = tuple(tensors[1].shape) if weight else ()
        self.watch(Layer(kind, name, label, tensors[:1], output, weight, shape))  # type: ignore[arg-type]


def _out_of_place(
    func: Callable[..., Any], name: str, args: tuple[Any, ...], given: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]:
    """An activation that would overwrite its input, as one that does not."""
    if name.endswith("_"):
        return getattr(torch.nn.functional, name[:-1]), args, given, name[:-1]
    try:
        bound = inspect.signature(func).bind(*args, **given)
    except (TypeError, ValueError):
        return func, args, given, name
    if bound.arguments.get("inplace"):
        bound.arguments["inplace"] = False
    return func, bound.args, dict(bound.kwargs), name


def _on_the_batch(args: tuple[Any, ...], given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a batch norm that reads the batch's statistics and remembers nothing."""
    bound = inspect.signature(torch.nn.functional.batch_norm).bind(*args, **given)
    bound.arguments |= {"running_mean": None, "running_var": None, "training": True}
    return bound.args, dict(bound.kwargs)


def _standardised(x: Tensor, axes: list[int], eps: float) -> Tensor:
    centred = x - x.mean(axes, keepdim=True)
    return centred * (centred.square().mean(axes, keepdim=True) + eps).rsqrt()


def _batch_norm(
    x: Tensor,
    mean: Tensor | None,
    var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    wide = (1, -1) + (1,) * (x.dim() - 2)
    if training or mean is None or var is None:
        y = _standardised(x, [0, *range(2, x.dim())], eps)
    else:
        y = (x - mean.view(wide)) * (var.view(wide) + eps).rsqrt()
    y = y if weight is None else y * weight.view(wide)
    return y if bias is None else y + bias.view(wide)


def _layer_norm(
    x: Tensor, shape: list[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    y = _standardised(x, list(range(-len(shape), 0)), eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _instance_norm(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if not use_input_stats:
        return _batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
    wide = (1, -1) + (1,) * (x.dim() - 2)
    y = _standardised(x, list(range(2, x.dim())), eps)
    y = y if weight is None else y * weight.view(wide)
    return y if bias is None else y + bias.view(wide)


SPELLED_OUT: dict[str, Callable[..., Any]] = {
    "batch_norm": _batch_norm,
    "instance_norm": _instance_norm,
    "layer_norm": _layer_norm,
}
