"""Ops that run several networks, whose maps are joined along the first axis of a sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

from epochzero.engine.gpu import fused
from epochzero.engine.gpu.fused import GatherTable
from epochzero.engine.population.grouped_kernels import with_kernels
from epochzero.plan.ops.base import Back, Gradients, Jet, Kind, Op, Param
from epochzero.plan.upload import upload
from epochzero.types import Shape

ChannelRange = tuple[int, int, int]
"""(which input, first channel, how many channels)"""


@dataclass(frozen=True, slots=True)
class Gather(Op):
    """Channels of its inputs, concatenated in the order of the pieces."""

    pieces: tuple[ChannelRange, ...]

    linear = True

    def shape(self, *inputs: Shape) -> Shape:
        return (sum(channels for _, _, channels in self.pieces), *inputs[0][1:])

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        if not any(one.requires_grad for one in x):
            return _gathered(self.pieces, x)
        gathered: Tensor = _Gather.apply(self.pieces, *x)  # type: ignore[no-untyped-call]
        return gathered


def _gathered(pieces: tuple[ChannelRange, ...], x: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([x[which].narrow(1, first, channels) for which, first, channels in pieces], 1)


class _Gather(Function):
    """Slices and their concatenation; the backward pass writes each piece of the gradient once."""

    @staticmethod
    def forward(ctx: Any, pieces: tuple[ChannelRange, ...], *x: Tensor) -> Tensor:
        ctx.pieces, ctx.shapes = pieces, [one.shape for one in x]
        return _gathered(pieces, x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return None, *_Scatter.apply(ctx.pieces, ctx.shapes, gradient)  # type: ignore[no-untyped-call]


class _Scatter(Function):
    """The transpose of gathering, and so its own derivative's transpose."""

    @staticmethod
    def forward(
        ctx: Any, pieces: tuple[ChannelRange, ...], shapes: list[torch.Size], gradient: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.pieces = pieces
        gradients = tuple(_zeros(shape, gradient) for shape in shapes)
        start = 0
        for which, first, channels in pieces:
            gradients[which].narrow(1, first, channels).add_(gradient.narrow(1, start, channels))
            start += channels
        return gradients

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, Tensor]:
        return None, None, _Gather.apply(ctx.pieces, *gradients)  # type: ignore[no-untyped-call]


def _zeros(shape: torch.Size, like: Tensor) -> Tensor:
    last = len(shape) == 4 and like.is_contiguous(memory_format=torch.channels_last)
    form = torch.channels_last if last else torch.contiguous_format
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=form).zero_()


@dataclass(frozen=True, eq=False)
class GatherSum(Op):
    """Sums of maps of its inputs: each output map is the sum of some of them."""

    table: GatherTable

    wiring = "gather"
    linear = True
    unique = True

    def shape(self, *inputs: Shape) -> Shape:
        return (inputs[0][0] // self.table.sizes[0] * self.table.maps, *inputs[0][1:])

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        table = self.table
        if fused.gathers(x[0]):
            return fused.gather_sum(x, table) if torch.is_grad_enabled() else fused.gathered(x, table)
        maps = [one.unflatten(1, (n, -1)) for one, n in zip(x, table.sizes, strict=True)]  # type: ignore[no-untyped-call]
        every = torch.cat(maps, 1)  # [B, M, C, ...]
        starts = np.cumsum((0, *table.sizes))
        outs, index = (upload(column, every.device) for column in (table.outs, starts[table.sources] + table.slots))
        zeros = every.new_zeros(len(every), table.maps, *every.shape[2:])
        return zeros.index_add(1, outs, every.index_select(1, index)).flatten(1, 2)

    def run_where(self, x: tuple[Tensor, ...], on: Tensor) -> Tensor:
        """Returns the sums, 0 where `on` is not positive: the gradient of the input of a ReLU with output `on`."""
        if fused.gathers(x[0]):
            return fused.gathered(x, self.table, on)
        return torch.ops.aten.threshold_backward(self.run(x, ()), on, 0)  # type: ignore[no-any-return]


def back_sum(readers: Sequence[tuple[GatherSum | None, int]], maps: int) -> GatherSum:
    """Returns the sum of the gradients of a value from readers of all of its maps, or of some by a gather."""
    tables = [everything(maps) if gather is None else gather.table.transposed(which) for gather, which in readers]
    outs, slots = (np.concatenate([getattr(t, name) for t in tables]) for name in ("outs", "slots"))
    sources = np.repeat(np.arange(len(tables)), [len(t.outs) for t in tables])
    order = np.argsort(outs, kind="stable")
    sizes = tuple(t.sizes[0] for t in tables)
    return GatherSum(GatherTable(maps, sizes, outs[order], sources[order], slots[order]))


def everything(maps: int) -> GatherTable:
    """Returns the table of each map by itself."""
    each = np.arange(maps)
    return GatherTable(maps, (maps,), each, np.zeros_like(each), each)


@dataclass(frozen=True, slots=True)
class Apart(Op):
    """Runs an op without a grouped form on several networks, one after the other."""

    op: Op
    count: int

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        return self.op.kind

    @property
    def name(self) -> str:
        return self.op.name

    @property
    def mixes_samples(self) -> bool:  # type: ignore[override]
        return self.op.mixes_samples

    def _own(self, *inputs: Shape) -> list[Shape]:
        """Returns the input shapes of one network."""
        return [(shape[0] // self.count, *shape[1:]) for shape in inputs]

    def shape(self, *inputs: Shape) -> Shape:
        first, *rest = self.op.shape(*self._own(*inputs))
        return first * self.count, *rest

    def params(self, *inputs: Shape) -> dict[str, Param]:
        own = self.op.params(*self._own(*inputs))
        return {f"{name}{i}": param for i in range(self.count) for name, param in own.items()}

    def macs(self, *inputs: Shape) -> int:
        return self.count * self.op.macs(*self._own(*inputs))

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        inputs = zip(*(one.chunk(self.count, 1) for one in x), strict=True)
        return torch.cat([self.op.run(own, weights) for own, weights in zip(inputs, self._shares(w), strict=True)], 1)

    def recorded(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> tuple[Tensor, Back] | None:
        inputs = zip(*(one.chunk(self.count, 1) for one in x), strict=True)
        each = [self.op.recorded(own, weights) for own, weights in zip(inputs, self._shares(w), strict=True)]
        there = [one for one in each if one is not None]
        return _recorded_apart(there, len(w) // self.count) if len(there) == self.count else None

    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        chunked = [zip(*(stream.chunk(self.count, 1) for stream in jet), strict=True) for jet in x]
        inputs = zip(*chunked, strict=True)
        jets = [self.op.jet(own, weights) for own, weights in zip(inputs, self._shares(w), strict=True)]
        value, velocity, acceleration = (torch.cat(streams, 1) for streams in zip(*jets, strict=True))
        return value, velocity, acceleration

    def layer_weights(self, params: Sequence[str]) -> list[str]:
        each = len(params) // self.count
        return [name for i in range(self.count) for name in self.op.layer_weights(params[i * each : (i + 1) * each])]

    def _shares(self, w: tuple[Tensor, ...]) -> list[tuple[Tensor, ...]]:
        each = len(w) // self.count
        return [w[i * each : (i + 1) * each] for i in range(self.count)]


def _recorded_apart(each: Sequence[tuple[Tensor, Back]], weights: int) -> tuple[Tensor, Back]:
    """Returns the outputs of several networks side by side, and the backward pass of an op with one input."""

    def back(
        gradient: Tensor, inputs: Sequence[bool], params: Sequence[bool], rectified: bool
    ) -> tuple[Gradients, Gradients]:
        of_inputs: Gradients = []
        of_params: Gradients = []
        for i, ((_, own), part) in enumerate(zip(each, gradient.chunk(len(each), 1), strict=True)):
            of_x, of_w = own(part, inputs, params[i * weights : (i + 1) * weights], rectified)
            of_inputs += of_x
            of_params += of_w
        there = [one for one in of_inputs if one is not None]
        return [torch.cat(there, 1) if there else None], of_params

    return torch.cat([output for output, _ in each], 1), back


def grouped(op: Op, count: int, *inputs: Shape, common: bool = True) -> Op:
    """Returns the op that does this for `count` networks: at once where it can, else one after the other.

    `common`: at least half of the networks have this op for inputs of these shapes.
    """
    joint = op.side_by_side(count, *inputs)
    return Apart(op, count) if joint is None else with_kernels(joint, count, common)
