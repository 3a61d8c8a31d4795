"""Small networks and batches, and `Twin`: a slow second version of a plan's network to check the engine against.

A twin is made of ordinary `nn` layers in double precision, with the network's weights copied in. It shares no code
with the engine beyond the plan's list of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from epochzero.data import Batch
from epochzero.engine import Need, Network, PlanNetwork, Proxy, parse, score_network
from epochzero.plan import Builder, Plan
from epochzero.plan.ops.activation import Activation, ReLU
from epochzero.plan.ops.base import Op
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.ops.pool import AvgPool, GlobalAvgPool
from epochzero.plan.ops.wiring import Add, Identity, Input, Zero
from epochzero.types import Origin, Score, Shape

IMAGE = (2, 6, 6)
CLASSES = 3

# ---- batches


def batch_of(*parts: tuple[Sequence[object] | Tensor, Sequence[int] | None]) -> Batch:
    """A batch whose parts are exactly these samples and labels."""
    tensors = [
        (
            x.float() if isinstance(x, Tensor) else torch.tensor(x, dtype=torch.float32),
            None if y is None else torch.tensor(y),
        )
        for x, y in parts
    ]
    size, *shape = tensors[0][0].shape
    return Batch("by-hand", "samples made for a test", tuple(shape), CLASSES, size, len(parts), tensors.__getitem__)


def random_batch(shape: Shape = IMAGE, size: int = 8, parts: int = 3, seed: int = 0) -> Batch:
    """Gaussian samples with random labels; eight of them, as the engine then turns to channels-last maps."""
    rng = torch.Generator().manual_seed(seed)
    made = [
        (torch.randn(size, *shape, generator=rng), torch.randint(CLASSES, (size,), generator=rng).tolist())
        for _ in range(parts)
    ]
    return batch_of(*made)


def unlabelled(batch: Batch) -> Batch:
    return replace(batch, make_part=lambda index: (batch.part(index)[0], None))


def labels(batch: Batch, part: int = 0) -> Tensor:
    y = batch.part(part)[1]
    assert y is not None
    return y


# ---- networks


def chain(shape: Shape, *ops: Op) -> Plan:
    """Ops in a row, called `conv0`, `relu1`, ..."""
    net = Builder()
    x = net.input(shape)
    for i, op in enumerate(ops):
        x = net.add(op, x, name=f"{type(op).__name__.lower()}{i}")
    return net.plan()


def with_weights(plan: Plan, **weights: object) -> PlanNetwork:
    """A network with weights written down by hand; `linear0=` gives those of the layer `linear0`."""
    network = PlanNetwork(plan)
    for layer, values in weights.items():
        name = f"{layer}.weight"
        tensor = values if isinstance(values, Tensor) else torch.tensor(values)
        assert tensor.shape == plan.weights[name].shape
        network.weights[name] = tensor.float()
    return network


def linear_net(*layers: Sequence[Sequence[float]], relu: bool = False) -> PlanNetwork:
    """Bias-free linear layers with these weight matrices, with or without ReLUs between them."""
    net = Builder()
    x = net.input((len(layers[0][0]),))
    for i, matrix in enumerate(layers):
        if relu and i:
            x = net.add(ReLU(), x, name=f"relu{i}")
        x = net.add(Linear(len(matrix), bias=False), x, name=f"linear{i}")
    return with_weights(net.plan(), **{f"linear{i}": matrix for i, matrix in enumerate(layers)})


def drawn(plan: Plan, seed: int = 0) -> PlanNetwork:
    """A network with random weights, those of batch norms too."""
    network = PlanNetwork(plan, Origin("default", seed))
    rng = torch.Generator().manual_seed(seed)
    for name, param in plan.weights.items():
        if param.role == "one":
            network.weights[name] = 0.5 + torch.rand(param.shape, generator=rng)
        elif param.role == "zero":
            network.weights[name] = 0.3 * torch.randn(param.shape, generator=rng)
    return network


def _head(net: Builder, x: int) -> PlanNetwork:
    x = net.add(GlobalAvgPool(), x, name="head.pool")
    net.add(Linear(CLASSES), x, name="head.linear")
    return drawn(net.plan())


def conv_net() -> PlanNetwork:
    """A stem; a convolution with norm beside pooling and a skip; a strided convolution with bias; a head."""
    net = Builder()
    x = net.input(IMAGE)
    x = net.add(Conv(4, 3, padding=1), x, name="stem.conv")
    x = net.add(BatchNorm(), x, name="stem.norm")
    conv = net.add(ReLU(), x, name="conv.relu")
    conv = net.add(Conv(4, 3, padding=1, groups=2), conv, name="conv.conv")
    conv = net.add(BatchNorm(affine=False), conv, name="conv.norm")
    pool = net.add(AvgPool(3, 1, padding=1), x, name="pool.pool")
    skip = net.add(Identity(), x, name="skip.skip")
    x = net.add(Add(), conv, pool, skip, name="sum")
    x = net.add(ReLU(), x, name="down.relu")
    x = net.add(Conv(3, 3, 2, padding=1, bias=True), x, name="down.conv")
    x = net.add(ReLU(), x, name="head.relu")
    return _head(net, x)


def dead_path_net() -> PlanNetwork:
    """Two convolutions side by side, the second of which leads nowhere."""
    net = Builder()
    x = net.input(IMAGE)
    x = net.add(Conv(3, 3, padding=1), x, name="stem.conv")
    x = net.add(BatchNorm(), x, name="stem.norm")
    live = net.add(ReLU(), x, name="live.relu")
    live = net.add(Conv(3, 1), live, name="live.conv")
    dead = net.add(ReLU(), x, name="dead.relu")
    dead = net.add(Conv(3, 3, padding=1), dead, name="dead.conv")
    dead = net.add(Zero(), dead, name="dead.zero")
    x = net.add(Add(), live, dead, name="sum")
    x = net.add(ReLU(), x, name="head.relu")
    return _head(net, x)


def cut_net() -> PlanNetwork:
    """The output does not depend on the input: only on the bias of the last layer."""
    net = Builder()
    x = net.input(IMAGE)
    x = net.add(Conv(3, 3, padding=1), x, name="stem.conv")
    x = net.add(ReLU(), x, name="stem.relu")
    x = net.add(Zero(), x, name="zero")
    x = net.add(Conv(3, 1), x, name="late.conv")
    return _head(net, x)


def shared_net() -> PlanNetwork:
    """One convolution, used twice in a row."""
    net = Builder()
    x = net.input(IMAGE)
    x = net.add(Conv(3, 1), x, name="stem.conv")
    x = net.add(BatchNorm(), x, name="stem.norm")
    x = net.add(Conv(3, 3, padding=1), x, name="first.conv")
    x = net.add(ReLU(), x, name="first.relu")
    x = net.add(Conv(3, 3, padding=1), x, name="again.conv", shares="first.conv")
    x = net.add(ReLU(), x, name="again.relu")
    return _head(net, x)


def layerless_net() -> PlanNetwork:
    """No convolution and no linear layer."""
    return PlanNetwork(chain((CLASSES, 6, 6), ReLU(), GlobalAvgPool()))


CONNECTED: list[Callable[[], PlanNetwork]] = [conv_net, dead_path_net, shared_net]

# ---- scores


def score(network: Network, proxy: str | Proxy, batch: Batch, seed: int = 0) -> Score:
    asked = parse(proxy) if isinstance(proxy, str) else proxy
    return score_network(network, [asked], batch, seed).scores[asked.text]


def value(network: Network, proxy: str | Proxy, batch: Batch, seed: int = 0) -> float:
    found = score(network, proxy, batch, seed)
    assert found.status == "ok", found.why
    return found.value


def precisely(proxy: str) -> Proxy:
    """The same proxy with every pass in double precision."""
    asked = parse(proxy)
    return replace(asked, needs_of=tuple(Need(replace(run, dtype="float64"), reads) for run, reads in asked.needs))


def assert_scores(
    network: PlanNetwork,
    proxy: str,
    batch: Batch,
    expected: float,
    *,
    single: float = 1e-4,
    double: float = 1e-9,
    seed: int = 0,
) -> None:
    """The score is what the oracle says, within these tolerances in single and in double precision."""
    assert value(network, proxy, batch, seed) == pytest.approx(expected, rel=single)
    assert value(network, precisely(proxy), batch, seed) == pytest.approx(expected, rel=double)


# ---- the second version


class Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sum((2, 3)) / (x.shape[2] * x.shape[3])


class Nothing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 0


class WrittenNorm(nn.Module):
    """Batch norm as sums and products.

    Torch's own takes the batch's statistics for constants in second derivatives by nested jvp (pytorch issue 196699).
    """

    def __init__(self, channels: int, eps: float, affine: bool) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(channels)) if affine else None
        self.bias = nn.Parameter(torch.zeros(channels)) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        axes = [0, *range(2, x.dim())]
        centred = x - x.mean(axes, keepdim=True)
        y = centred / (centred.square().mean(axes, keepdim=True) + self.eps).sqrt()
        if self.weight is None or self.bias is None:
            return y
        wide = (-1,) + (1,) * (x.dim() - 2)
        return y * self.weight.view(wide) + self.bias.view(wide)


class Twin(nn.Module):
    """The network of a plan as `nn` layers; after each run, `outputs` holds what every layer gave.

    Norms read the statistics of the batch ("train", or "written" for a norm that can be differentiated twice in
    forward mode) or the remembered ones ("eval"), or are skips ("off").
    """

    def __init__(self, network: PlanNetwork, norm: str = "train") -> None:
        super().__init__()
        self.nodes = network.plan.nodes
        self.parts = nn.ModuleDict()
        self.outputs: list[tuple[nn.Module, Tensor, Tensor]] = []
        """(layer, its input, its output) in the order of the run; a layer that runs twice comes twice"""
        for node in self.nodes:
            if not isinstance(node.op, Add | Input) and self._key(node.params, node.name) not in self.parts:
                part = _layer(node.op, network.plan.nodes[node.inputs[0]].shape, norm)
                state = {name.rpartition(".")[2]: network.weights[name] for name in node.params}
                copied = {name: state[name] for name in part.state_dict() if name in state}
                part.load_state_dict(copied, strict=False)
                self.parts[self._key(node.params, node.name)] = part
        self.double()

    @staticmethod
    def _key(params: tuple[str, ...], name: str) -> str:
        """Nodes that name the same parameters are one layer."""
        return (params[0].rpartition(".")[0] if params else name).replace(".", "/")

    @property
    def layer_weights(self) -> list[Tensor]:
        """Of convolutions and linear layers, each once, in order."""
        return [part.weight for part in self.parts.values() if isinstance(part, nn.Conv2d | nn.Linear)]

    def forward(self, x: Tensor) -> Tensor:
        values: list[Tensor] = []
        self.outputs = []
        for node in self.nodes:
            if isinstance(node.op, Input):
                values.append(x)
            elif isinstance(node.op, Add):
                values.append(torch.stack([values[i] for i in node.inputs]).sum(0))
            else:
                part = self.parts[self._key(node.params, node.name)]
                values.append(part(values[node.inputs[0]]))
                self.outputs.append((part, values[node.inputs[0]], values[-1]))
        return values[-1]

    def loss(self, batch: Batch, part: int = 0) -> Tensor:
        """Mean cross-entropy, written out."""
        logits = self(batch.part(part)[0].double())
        right = torch.stack([row[label] for row, label in zip(logits, labels(batch, part), strict=True)])
        loss: Tensor = (logits.exp().sum(1).log() - right).mean()
        return loss

    def gradients(self, batch: Batch, part: int = 0) -> list[Tensor]:
        """Of the loss, for `layer_weights`."""
        self.zero_grad()
        torch.autograd.backward(self.loss(batch, part))
        return [torch.zeros_like(w) if w.grad is None else w.grad.clone() for w in self.layer_weights]


def _layer(op: Op, shape: Shape, norm: str) -> nn.Module:
    part: nn.Module
    match op:
        case Conv():
            window = (op.kernel, op.stride, op.padding, op.dilation)
            part = nn.Conv2d(shape[0], op.out_channels, *window, op.groups, op.bias)
        case Linear():
            part = nn.Linear(shape[-1], op.out_features, op.bias)
        case BatchNorm() if norm == "written":
            part = WrittenNorm(shape[0], op.eps, op.affine)
        case BatchNorm() if norm != "off":
            kind = nn.BatchNorm2d if len(shape) == 3 else nn.BatchNorm1d
            part = kind(shape[0], op.eps, op.momentum, op.affine, track_running_stats=norm == "eval")
            part.train(norm == "train")
        case BatchNorm() | Identity():
            part = nn.Identity()
        case Activation():
            part = getattr(nn, type(op).__name__)()
        case AvgPool():
            part = nn.AvgPool2d(op.kernel, op.stride, op.padding, count_include_pad=False)
        case GlobalAvgPool():
            part = Mean()
        case Zero():
            part = Nothing()
        case _:
            raise NotImplementedError(op)
    return part
