"""The velocities of a routine's run: how every map, and every gradient, changes along a line of the parameters.

Velocities of maps have the same slots as the maps. Those of a batch norm's input are in an arena of their own, by rows,
and those of its output in the slot of the convolution before it: so sums need no scales.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from epochzero.engine.gpu.arena import Source, SourcePair, TensorPair, Terms
from epochzero.engine.gpu.routine_run import RoutineRun
from epochzero.engine.gpu.routine_steps import BackConvolution, Convolution, Sum


class RoutineVelocity:
    """The velocities of one run."""

    def __init__(self, run: RoutineRun, given: Tensor | None, along: Mapping[str, Tensor]) -> None:
        """`given` is the velocity of the input (None: 0) and `along` those of parameters; others do not move."""
        self.run, self.along = run, along
        self.given = torch.zeros_like(run.given) if given is None else given
        self.kernels, known = run.kernels, run.routine
        self.arenas = [torch.empty_like(arena) for arena in run.arenas]
        self.before_norms = [
            run.given.new_empty((rows, *size)) for rows, size in zip(known.rows, run.sizes, strict=True)
        ]
        self.output = torch.empty_like(run.output)
        run.fill(self)

    def place(self, shape: int) -> Source:
        return Source(self.arenas[shape], self.given if shape == 0 else None)

    def _pair(self, shape: int) -> SourcePair:
        return self.run.place(shape), self.place(shape)

    def add_up(self, step: Sum, table: tuple[Tensor, ...], out: Tensor, place: Source) -> None:
        self.kernels.combine(out[: len(step.terms.counts)], place, Terms(*table), None)

    def _weights(self, node: int) -> TensorPair:
        weight = self.run.weight(node)
        velocity = self.along.get(self.run.names(node)[0])
        return weight, torch.zeros_like(weight) if velocity is None else velocity

    def convolve(self, step: Convolution, table: tuple[Tensor, ...]) -> None:
        run, count = self.run, len(step.which)
        sources, which, own, rows = table
        slots = slice(step.first, step.first + count)
        given = self.arenas[step.shape][slots]
        out = given if step.norm is None else self.before_norms[step.shape][step.row : step.row + count]
        weights, window = self._weights(step.node), run.window(step.node)
        self.kernels.convolve_jvp(out, self._pair(step.given), sources, weights, which, window, step.relu)
        if step.norm is not None:
            moved, arena, statistics = Source(self.before_norms[step.shape]), run.arenas[step.shape], run.statistics
            scale, _ = run.affine(step.norm)
            self.kernels.norm_back(given, arena, own, moved, rows, statistics[step.shape], rows, scale, which)

    def back(self, gradients: TensorPair, of_input: bool, grads: dict[str, Tensor]) -> TensorPair | None:
        """Returns the gradients of the input with velocities; `grads` gets the velocities of parameters' gradients."""
        arrived = self.run.steps_back(self, gradients, of_input, partial(self._convolve_back, of_input, grads))
        return None if arrived is None else (arrived[0], arrived[1])

    def _convolve_back(
        self,
        of_input: bool,
        grads: dict[str, Tensor],
        back: BackConvolution,
        table: tuple[Tensor, ...],
        arenas: list[list[Tensor]],
        pair: list[Source],
    ) -> None:
        run, step, count = self.run, back.step, len(back.alive)
        gradients, own, rows, which, sources, starts, none = table
        first, second = (pair[0].arena.new_empty((count, *run.sizes[step.shape])) for _ in pair)
        if step.norm is None:
            for out, place in zip((first, second), pair, strict=True):
                self.kernels.combine(out, place, Terms(starts, gradients, none), None)
        else:
            scale, _ = run.affine(step.norm)
            arena, moved = run.arenas[step.shape], self.before_norms[step.shape]
            statistics = run.statistics[step.shape]
            self.kernels.norm_back_jvp(
                (first, second), arena, own, moved, (pair[0], pair[1]), gradients, statistics, rows, scale, which
            )
        window, arrived = run.window(step.node), (first, second)
        if (name := run.names(step.node)[0]) in self.along:
            value = self.kernels.correlate_jvp(self._pair(step.given), sources, step.relu, arrived, window)
            grads[name] = run.filled(value, step.node, which, count)
        if of_input or (step.sources[back.alive] >= 0).any():
            on = run.place(step.given) if step.relu else None
            weights = self._weights(step.node)
            slots = slice(back.first, back.first + count)
            out, moved = (one[step.given][slots] for one in arenas)
            self.kernels.convolve_back(out, first, weights[0], which, window, on, sources)
            self.kernels.convolve_back_jvp(moved, arrived, weights, which, window, on, sources)
