"""One run of a routine: it fills an arena, and gradients go back through it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from epochzero.engine.gpu import arena as arenas
from epochzero.engine.gpu.arena import Source, Terms
from epochzero.engine.gpu.routine_steps import BackConvolution, Convolution, Routine, Sum
from epochzero.engine.population.merged import Merged
from epochzero.plan.ops.batch_statistics import check
from epochzero.plan.plan import Node


class ScatteredMaps(NamedTuple):
    """Some maps of an arena, one for each of several networks."""

    place: Source
    slots: Tensor
    """[M]"""
    relu: bool = False
    """of max(x, 0)"""

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def maps(self) -> Tensor:
        """[M, B, H, W, C]: a copy."""
        arena = self.place.arena
        out = arena.new_empty((len(self), *arena.shape[1:]))
        ones = torch.arange(len(self) + 1, dtype=torch.int32, device=arena.device)
        none = torch.full_like(self.slots, -1)
        arenas.kernels().combine(out, self.place, Terms(ones, self.slots, none), None)
        return out.relu_() if self.relu else out

    @property
    def dense(self) -> Tensor:
        """The same as [B, M, C, H, W]."""
        return self.maps.permute(1, 0, 4, 2, 3)


class Watcher(Protocol):
    """Receives the values of a run."""

    @property
    def streams(self) -> set[str]:
        """The streams that it collects."""

    @property
    def feature_nodes(self) -> Collection[str]:
        """The nodes whose outputs are some network's last feature map."""

    def __call__(self, node: Node, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Receives a node of a tape with its values."""

    def arrived(self, node: Node, gradient: Tensor) -> None:
        """Receives the gradient of its output."""

    def spread(self, stream: str, node: Node, which: Any, *maps: ScatteredMaps) -> None:
        """Receives a routine's node: its input, or its input, output and output's gradient, for `which` of its maps."""

    def ended(self, node: Node, maps: Tensor, back: Callable[[Tensor], Tensor]) -> None:
        """Receives the output [P, B, H, W, C] of the block that ends with a node, and its backward pass."""


def to_joint(maps: Tensor, networks: int) -> Tensor:
    """Returns maps [P, B, H, W, C] in torch's layout, [B, P * C, H, W]; a single map is repeated for every network."""
    return maps.expand(networks, *maps.shape[1:]).permute(1, 0, 4, 2, 3).flatten(1, 2)


def from_joint(joint: Tensor, networks: int) -> Tensor:
    """Returns maps [B, P * C, H, W] as [P, B, H, W, C]."""
    each: Tensor = joint.unflatten(1, (networks, -1))  # type: ignore[no-untyped-call]
    return each.permute(1, 0, 3, 4, 2).contiguous()


class StepRunner(Protocol):
    """Runs the steps of a routine."""

    arenas: list[Tensor]
    output: Tensor

    def place(self, shape: int) -> Source:
        """Returns where the maps of a shape are read."""

    def add_up(self, step: Sum, table: tuple[Tensor, ...], out: Tensor, place: Source) -> None:
        """Writes sums."""

    def convolve(self, step: Convolution, table: tuple[Tensor, ...]) -> None:
        """Writes convolutions, and their norms."""


class RoutineRun:
    """A block that runs as its routine says, for all networks at once."""

    def __init__(self, name: str, block: Merged, known: Routine, weights: Mapping[str, Tensor], given: Tensor) -> None:
        self.name, self.block, self.routine = name, block, known
        self.nodes = block.plan.nodes
        self.weights = weights
        self.given = given
        self.kernels = arenas.kernels()
        self.tables = known.tables(given.device)
        self.sizes = [self._size(node) for node in known.shapes]
        self.arenas = [given.new_empty((count, *size)) for count, size in zip(known.slots, self.sizes, strict=True)]
        sizes = [(rows, 2, size[-1]) for rows, size in zip(known.rows, self.sizes, strict=True)]
        self.coefficients, self.statistics = ([given.new_empty(size) for size in sizes] for _ in range(2))
        self.output = given.new_empty((len(known.output.terms.counts), *self.sizes[known.output.shape]))
        self.fill(self)

    def fill(self, by: StepRunner) -> None:
        """Writes the arenas and the output of `by` step by step: its own, or those of its velocities."""
        for step, table in zip(self.routine.steps, self.tables.steps, strict=True):
            if isinstance(step, Sum):
                by.add_up(step, table, by.arenas[step.shape][step.first :], by.place(step.shape))
            elif isinstance(step, Convolution):
                by.convolve(step, table)
            else:
                out = by.arenas[step.shape][step.first : step.first + len(step.sources)]
                self.kernels.pool(out, by.place(step.given), table[0], self.window(step.node), False)
        end = self.routine.output
        by.add_up(end, self.tables.output, by.output, by.place(end.shape))

    def _size(self, node: int) -> tuple[int, int, int, int]:
        """[B, H, W, C] of a node's map."""
        channels, height, width = self.nodes[node].shape
        return self.given.shape[1], height, width, channels // self.block.maps[self.nodes[node].name]

    def place(self, shape: int) -> Source:
        return Source(self.arenas[shape], self.given if shape == 0 else None)

    def add_up(self, step: Sum, table: tuple[Tensor, ...], out: Tensor, place: Source) -> None:
        scaled = (step.terms.rows >= 0).any()
        coefficients = self.coefficients[step.shape] if scaled else None
        self.kernels.combine(out[: len(step.terms.counts)], place, Terms(*table), coefficients)

    def window(self, node: int) -> tuple[int, int, int, int]:
        op: Any = self.nodes[node].op
        return op.kernel, op.stride, op.padding, getattr(op, "dilation", 1)

    def weight(self, node: int, which: int = 0) -> Tensor:
        return self.weights[f"{self.name}.{self.nodes[node].params[which]}"]

    def affine(self, node: int) -> tuple[Tensor | None, Tensor | None]:
        op: Any = self.nodes[node].op
        return (self.weight(node), self.weight(node, 1)) if op.affine else (None, None)

    def convolve(self, step: Convolution, table: tuple[Tensor, ...]) -> None:
        sources, which, _, _ = table
        count = len(step.which)
        out = self.arenas[step.shape][step.first : step.first + count]
        normed = step.norm is not None
        moments = self.kernels.convolve(
            out,
            self.place(step.given),
            sources,
            self.weight(step.node),
            which,
            self.window(step.node),
            step.relu,
            normed,
        )
        if step.norm is not None:
            _, images, height, width, channels = out.shape
            check(images * height * width, (images, channels, height, width))
            own = slice(step.row, step.row + count)
            self.kernels.settle(
                self.coefficients[step.shape][own],
                self.statistics[step.shape][own],
                moments,
                images * height * width,
                *self.affine(step.norm),
                which,
                self.nodes[step.norm].op.eps,  # type: ignore[attr-defined]
            )

    def show(self, watch: Watcher) -> None:
        """Hands over what is collected of the forward pass."""
        if "relus" in watch.streams:
            for node, (slots, which) in self.tables.relus.items():
                watch.spread("relus", self._named(node), which, ScatteredMaps(self.place(self._shape(node)), slots))
        if "norms" in watch.streams:
            for step, table in zip(self.routine.steps, self.tables.steps, strict=True):
                if isinstance(step, Convolution) and step.norm is not None:
                    given = ScatteredMaps(Source(self.arenas[step.shape]), table[2])
                    watch.spread("norms", self._named(step.norm), step.which, given)
        if watch.streams & {"blocks", "block_gradients"}:
            watch.ended(self._named(len(self.nodes) - 1), self.output, self._sent_back)

    def _sent_back(self, gradient: Tensor) -> Tensor:
        """Returns the gradient of the input from that of the output."""
        of_input = self.back(gradient, (), True, None, {})
        assert of_input is not None
        return of_input

    def _shape(self, node: int) -> int:
        return self.sizes.index(self._size(node))

    def _named(self, node: int) -> Node:
        own = self.nodes[node]
        return own._replace(name=f"{self.name}.{own.name}", params=tuple(f"{self.name}.{p}" for p in own.params))

    def steps_back(
        self,
        by: StepRunner,
        gradients: Sequence[Tensor],
        of_input: bool,
        convolve_back: Callable[[BackConvolution, tuple[Tensor, ...], list[list[Tensor]], list[Source]], None],
    ) -> list[Tensor] | None:
        """Takes gradients of the output back, each in arenas of its own: one, or one and its velocity.

        `convolve_back` gets a step with its tables, the arenas, and where the gradients of its outputs are read.
        Returns the gradients of the input, if they are asked for.
        """
        known = self.routine
        sizes = list(zip(known.back_slots, self.sizes, strict=True))
        arenas = [[self.given.new_empty((count, *size)) for count, size in sizes] for _ in gradients]
        sources = [
            [Source(arena, own if s == known.output.shape else None) for s, arena in enumerate(one)]
            for one, own in zip(arenas, gradients, strict=True)
        ]
        for step, table in zip(known.back_steps, self.tables.back_steps, strict=True):
            if isinstance(step, BackConvolution):
                convolve_back(step, table, arenas, [source[step.step.shape] for source in sources])
                continue
            for arena, source in zip(arenas, sources, strict=True):
                if isinstance(step, Sum):
                    by.add_up(step, table, arena[step.shape][step.first :], source[step.shape])
                else:
                    out = arena[step.step.given][step.first : step.first + len(step.gradients)]
                    self.kernels.pool(out, source[step.step.shape], table[0], self.window(step.step.node), True)
        if not of_input:
            return None
        count = len(known.of_input.terms.counts)
        arrived = [gradient.new_empty((count, *self.sizes[0])) for gradient in gradients]
        for out, source in zip(arrived, sources, strict=True):
            by.add_up(known.of_input, self.tables.of_input, out, source[0])
        return arrived

    def back(
        self,
        gradient: Tensor,
        wanted: Collection[str],
        of_input: bool,
        watch: Watcher | None,
        grads: dict[str, Tensor],
    ) -> Tensor | None:
        if gradient.dim() == 4:
            gradient = from_joint(gradient, len(self.output))
        convolve_back = partial(self._convolve_back, wanted, of_input, watch, grads)
        arrived = self.steps_back(self, [gradient], of_input, convolve_back)
        return None if arrived is None else arrived[0]

    def _convolve_back(
        self,
        wanted: Collection[str],
        of_input: bool,
        watch: Watcher | None,
        grads: dict[str, Tensor],
        back: BackConvolution,
        table: tuple[Tensor, ...],
        arenas: list[list[Tensor]],
        sources_of_output: list[Source],
    ) -> None:
        step, count = back.step, len(back.alive)
        gradients, own, rows, which, sources, starts, none = table
        place = sources_of_output[0]
        arrived = place.arena.new_empty((count, *self.sizes[step.shape]))
        if step.norm is None:
            self.kernels.combine(arrived, place, Terms(starts, gradients, none), None)
        else:
            weight, _ = self.affine(step.norm)
            arena, statistics = self.arenas[step.shape], self.statistics[step.shape]
            affine = self.kernels.norm_back(arrived, arena, own, place, gradients, statistics, rows, weight, which)
            for param, value in zip(self.names(step.norm)[:2], affine, strict=True):
                if weight is not None and param in wanted:
                    grads[param] = self.filled(value, step.norm, which, count)
        if watch is not None:
            given = ScatteredMaps(self.place(step.given), sources, step.relu)
            gave = ScatteredMaps(Source(self.arenas[step.shape]), own)
            gradient = ScatteredMaps(Source(arrived), starts[:-1])
            watch.spread("layer_gradients", self._named(step.node), step.which[back.alive], given, gave, gradient)
        window = self.window(step.node)
        if (name := self.names(step.node)[0]) in wanted:
            value = self.kernels.correlate(self.place(step.given), sources, step.relu, arrived, window)
            grads[name] = self.filled(value, step.node, which, count)
        if of_input or (step.sources[back.alive] >= 0).any():
            out = arenas[0][step.given][back.first : back.first + count]
            on = self.place(step.given) if step.relu else None
            self.kernels.convolve_back(out, arrived, self.weight(step.node), which, window, on, sources)

    def names(self, node: int) -> list[str]:
        return [f"{self.name}.{param}" for param in self.nodes[node].params]

    def filled(self, value: Tensor, node: int, which: Tensor, count: int) -> Tensor:
        """Values [M, ...] as [W * ..., ...], with zeros for networks that have none."""
        maps = self.block.maps[self.nodes[node].name]
        if count == maps:
            return value.flatten(0, 1)
        whole = value.new_zeros((maps, *value.shape[1:]))
        return whole.index_copy_(0, which.long(), value).flatten(0, 1)
