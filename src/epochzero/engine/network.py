"""A network that the engine can run: a pure function of weights and inputs whose layers can be observed.

`PlanNetwork` runs a plan; `epochzero.engine.modules.module_network.ModuleNetwork` runs any `nn.Module`. Proxies see no
difference between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from epochzero.data import Batch
from epochzero.data.packed import embedded, only_ids
from epochzero.engine import foreach
from epochzero.engine.failure import LinAlgError, PassFailedError, not_of_the_network
from epochzero.engine.loss import LABEL, Loss
from epochzero.engine.passes import Layer, Norm, Watch
from epochzero.engine.structure import Structure, structure_of
from epochzero.plan import Plan, execute, execute_jet
from epochzero.plan.init import draw
from epochzero.plan.ops.base import Jet
from epochzero.plan.plan import Node
from epochzero.types import Origin

CHANNELS_LAST_FROM = 8
"""the batch size from which convolutions on the CPU run faster in channels-last form"""
CHANNELS_LAST_ON = {"cpu"}
"""kinds of devices"""


def runs_faster_channels_last(x: Tensor) -> bool:
    return x.dim() == 4 and len(x) >= CHANNELS_LAST_FROM and x.device.type in CHANNELS_LAST_ON


def not_finite(parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor] = {}) -> str:
    """Names the first weight that holds nan or inf; a buffer may hold -inf, as attention masks do."""
    every = {**parameters, **buffers}
    if foreach.all_finite([w for w in every.values() if w.is_floating_point() and w.element_size() > 1]):
        others = {name: w for name, w in every.items() if w.is_complex() or w.element_size() == 1}
    else:
        others = every
    for name, tensor in others.items():
        if not (tensor.is_floating_point() or tensor.is_complex()) or torch.isfinite(tensor).all():
            continue
        if tensor.isnan().any():
            return f"the weight '{name}' holds nan"
        if name in parameters or tensor.isposinf().any():
            return f"the weight '{name}' holds inf"
    return ""


class Network(Protocol):
    """The interface that passes need of a network."""

    @property
    def device(self) -> torch.device: ...

    @property
    def weights(self) -> Mapping[str, Tensor]:
        """Parameters and buffers by name."""

    @property
    def layer_weights(self) -> tuple[str, ...]:
        """The names of the weights of conv and linear layers, in the network's order."""

    @property
    def hides(self) -> str:
        """The reason why some layers' weights cannot be seen; empty if all can."""

    @property
    def broken(self) -> str:
        """The weight that is not finite, if one is; empty otherwise."""

    def mixes_samples(self, norm: Norm) -> bool:
        """Returns True if a sample's output may depend on the other samples of its batch."""

    @property
    def trainable(self) -> tuple[str, ...]:
        """The names of all trainable parameters."""

    @property
    def params(self) -> int: ...

    @property
    def flops(self) -> int: ...

    @property
    def structure(self) -> Structure: ...

    @property
    def holds_blocks(self) -> str:
        """The name of the part whose parts are the blocks that proxies read; empty for the whole network."""

    def forward(
        self,
        x: Tensor,
        weights: Mapping[str, Tensor],
        norm: Norm,
        watch: Watch | None = None,
        blocks: bool = False,
    ) -> Tensor:
        """Returns the logits. `watch` sees every layer, and with `blocks` the output of every block of layers too."""

    def untouched(self, x: Tensor, weights: Mapping[str, Tensor], mode: TorchFunctionMode) -> Tensor:
        """Returns the logits in evaluation, with every call as the network makes it, under a function mode."""

    def jet(self, x: Jet, weights: Mapping[str, Tensor], norm: Norm) -> Jet:
        """Returns the logits with two derivatives, from those of the inputs."""

    def redrawn(self, origin: Origin) -> Mapping[str, Tensor]:
        """Returns new weights for the same network."""

    def embedded(self, batch: Batch) -> Batch:
        """Returns a batch of ids with additions to their embeddings, which can be moved; any other batch as it is."""


class Handle(NamedTuple):
    """A network with the weights and inputs of a pass, for proxies that run it themselves."""

    network: Network
    weights: Mapping[str, Tensor]
    x: Tensor
    y: Tensor | None
    seed: int
    norm: Norm
    loss: Loss = LABEL

    def __call__(self, x: Tensor, watch: Watch | None = None, blocks: bool = False) -> Tensor:
        return self.network.forward(x, self.weights, self.norm, watch, blocks)


class PlanNetwork:
    """A plan, or a function that builds it on first use, with weights that are drawn from an origin or given."""

    def __init__(
        self,
        plan: Plan | Callable[[], Plan],
        weights: Origin | Mapping[str, Tensor] = Origin(),
        device: str | torch.device = "cpu",
    ) -> None:
        self._plan = plan
        self._given = weights
        self._device = device

    @property
    def device(self) -> torch.device:
        return torch.device(self._device)

    @cached_property
    def plan(self) -> Plan:
        return self._plan if isinstance(self._plan, Plan) else self._plan()

    @property
    def origin(self) -> Origin | None:
        """The origin that the weights are drawn from; None if they were given."""
        return self._given if isinstance(self._given, Origin) else None

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        if isinstance(self._given, Origin):
            return draw(self.plan.weights, self._given, self.device)
        return {name: tensor.detach().to(self._device) for name, tensor in self._given.items()}

    hides = ""
    holds_blocks = ""

    @cached_property
    def broken(self) -> str:
        return "" if isinstance(self._given, Origin) else not_finite(self.weights)

    def mixes_samples(self, norm: Norm) -> bool:
        return norm == "train" and any(node.op.mixes_samples for node in self.plan.nodes)

    @property
    def layer_weights(self) -> tuple[str, ...]:
        return self.plan.layer_weights

    @property
    def trainable(self) -> tuple[str, ...]:
        weights = self.plan.weights
        named = (name for node in self.plan.nodes for name in node.params if weights[name].trainable)
        return tuple(dict.fromkeys(named))

    @property
    def params(self) -> int:
        return self.plan.params

    @property
    def flops(self) -> int:
        return self.plan.flops

    @property
    def structure(self) -> Structure:
        return structure_of(self.plan)

    def forward(
        self,
        x: Tensor,
        weights: Mapping[str, Tensor],
        norm: Norm,
        watch: Watch | None = None,
        blocks: bool = False,
    ) -> Tensor:
        plan = plan_for(self.plan, norm)
        ends = _block_ends(plan) if blocks else {}

        def see(node: Node, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            assert watch is not None
            if node.op.kind:
                weight = node.params[0] if node.op.kind in ("conv", "linear") else None
                shape = plan.weights[weight].shape if weight else ()
                watch(Layer(node.op.kind, node.op.name, node.name, inputs, output, weight, shape))
            for block in ends.get(node.name, ()):
                watch(Layer("block", "block", block, inputs, output))

        if runs_faster_channels_last(x):
            x = x.contiguous(memory_format=torch.channels_last)
        try:
            return execute(plan, weights, (x,), None if watch is None else see)
        except (RuntimeError, ValueError) as error:
            if not_of_the_network(error) or isinstance(error, LinAlgError):
                raise
            raise PassFailedError(f"the network cannot run on inputs of shape {list(x.shape)}: {error}") from error

    def untouched(self, x: Tensor, weights: Mapping[str, Tensor], mode: TorchFunctionMode) -> Tensor:
        with mode:
            return self.forward(x, weights, "eval")

    def jet(self, x: Jet, weights: Mapping[str, Tensor], norm: Norm) -> Jet:
        return jet_of(plan_for(self.plan, norm), weights, x)

    def embedded(self, batch: Batch) -> Batch:
        shapes = [node.shape for node in self.plan.nodes if node.op.looks_up]
        return embedded(batch, shapes) if only_ids(batch) and shapes else batch

    def redrawn(self, origin: Origin) -> Mapping[str, Tensor]:
        return draw(self.plan.weights, origin, self.device)


def plan_for(plan: Plan, norm: Norm) -> Plan:
    """Returns the plan with its batch norms in this mode."""
    if norm == "off":
        return plan.without_norms
    return plan.with_statistics("batch" if norm == "train" else "running")


def jet_of(plan: Plan, weights: Mapping[str, Tensor], x: Jet) -> Jet:
    """Returns the plan's output along a curve; raises a reason if an op has no derivatives or refuses the input."""
    try:
        return execute_jet(plan, weights, (x,))
    except NotImplementedError as error:
        raise PassFailedError(str(error) or "an op of the network has no second derivative along a curve") from error
    except (RuntimeError, ValueError) as error:
        if not_of_the_network(error) or isinstance(error, LinAlgError):
            raise
        shape = list(x[0].shape)
        raise PassFailedError(f"the network cannot run along a curve of inputs of shape {shape}: {error}") from error


def _block_ends(plan: Plan) -> dict[str, list[str]]:
    """Returns for each node the blocks that end with it; the whole network is the block ''."""
    last: dict[str, str] = {}
    for node in plan.nodes:
        parts = node.name.split(".")[:-1]
        for depth in range(len(parts) + 1):
            last[".".join(parts[:depth])] = node.name
    ends: dict[str, list[str]] = {}
    for block, node_name in last.items():
        ends.setdefault(node_name, []).append(block)
    return ends
