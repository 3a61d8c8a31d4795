"""A run of a merged plan, block by block, whose gradients can be taken: some blocks as routines, others on tapes.

Blocks for which there is a routine (`epochzero.engine.gpu.routine`) run in an arena, in which a network's map is
[B, H, W, C]; any other block, as a rule the head, goes through a `Tape`, for which the networks' maps lie side by side.
It has what a `Tape` of the whole plan has, and takes a fraction of the launches and of the memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from epochzero.engine.gpu.arena import TensorPair
from epochzero.engine.gpu.routine import NoRoutineError, routine
from epochzero.engine.gpu.routine_run import RoutineRun, Watcher, from_joint, to_joint
from epochzero.engine.gpu.routine_steps import Routine
from epochzero.engine.gpu.routine_velocity import RoutineVelocity
from epochzero.engine.population.merged import Merged
from epochzero.engine.population.tape import INPUT, BackSums, Tape
from epochzero.plan.execute import execute
from epochzero.plan.plan import Inlined, Node

Norm = Literal["train", "eval", "off"]
"""as in `epochzero.engine.reads`; routines run the first and the last"""
WATCHED = frozenset({"relus", "norms", "features", "blocks", "layer_gradients", "block_gradients"})
"""streams that can be collected"""


class _Run(NamedTuple):
    """A block that has run."""

    source: int
    """the node of the whole plan that it reads"""
    node: int
    """the node that it ends with"""
    of: RoutineRun | TapedBlock


class BlockRun:
    """The values of one run, kept as far as its backward pass needs them."""

    def __init__(
        self,
        merged: Merged,
        norm: Norm,
        weights: Mapping[str, Tensor],
        x: Tensor,
        follow: Collection[str] = (),
        follow_inputs: bool = False,
        watch: Watcher | None = None,
        sums: BackSums | None = None,
    ) -> None:
        """`x` [B, C, H, W] is the input of every network; with nothing to follow, no backward pass is kept."""
        self._watch = watch
        self._follow = frozenset(follow)
        self._sums: BackSums = {} if sums is None else sums
        self._runs: list[_Run] = []
        self._first = merged.plan.inputs[0]
        keep = bool(follow) or follow_inputs
        handed: dict[int, Tensor] = {self._first: x.permute(0, 2, 3, 1)[None].contiguous()}  # [1, B, H, W, C]
        left = Counter(piece.inputs[0] for piece in _blocks(merged))
        with torch.no_grad():
            for (name, block), piece in zip(merged.parts, _blocks(merged), strict=True):
                (source,) = piece.inputs
                run = _Run(source, _node(piece), self._run(name, block, norm, weights, handed[source]))
                left[source] -= 1
                if not left[source]:
                    del handed[source]
                handed[run.node] = run.of.output
                if keep:
                    self._runs.append(run)
        self.output = handed.popitem()[1]

    def _run(
        self, name: str, block: Merged, norm: Norm, weights: Mapping[str, Tensor], given: Tensor
    ) -> RoutineRun | TapedBlock:
        watch = self._watch
        known = routine_of(block, norm, () if watch is None else watch.streams)
        if known is not None and given.dim() == 5:
            run = RoutineRun(name, block, known, weights, given)
            if watch is not None:
                run.show(watch)
            return run
        x = to_joint(given, block.size) if given.dim() == 5 else given
        return TapedBlock(name, block, norm, weights, x, self._follow, watch, self._sums)

    @torch.no_grad()
    def gradients(self, of_output: Tensor, names: Collection[str], seen: object = None) -> dict[str, Tensor]:
        """Returns the gradients of <output, of_output> for those of these parameters on which it depends.

        The gradient of the input is that of each network, side by side. Only what is followed can be asked for. Where
        something is to see the gradients, it is what watched the run.
        """
        wanted = frozenset(names)
        grads: dict[str, Tensor] = {}
        sent: dict[int, Tensor] = {self._runs[-1].node: of_output}
        watch = None if seen is None else self._watch
        for source, node, run in reversed(self._runs):
            if node not in sent:
                continue
            of_input = source != self._first or INPUT in wanted
            back = run.back(sent.pop(node), wanted, of_input, watch, grads)
            if back is not None:
                sent[source] = back if source not in sent else sent[source] + back
        if INPUT in wanted and self._first in sent:
            gradient = sent[self._first]
            grads[INPUT] = to_joint(gradient, len(gradient)) if gradient.dim() == 5 else gradient
        return grads

    def has_curvature(self) -> bool:
        """Returns True where `curvature` can run: blocks in a chain, all of them routines but the last."""
        chained = all(run.source == before.node for before, run in pairwise(self._runs))
        return chained and all(isinstance(run.of, RoutineRun) for run in self._runs[:-1])

    def curvature(self, of: Callable[[Tensor], Tensor], along: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns the product of the Hessian of `of`, a function of the output, with these directions of parameters.

        The derivative of the gradients along a line: there and back through the routines with velocities, and twice
        through the last block by autograd.
        """
        *runs, last = [run.of for run in self._runs]
        moving: list[RoutineVelocity] = []
        assert isinstance(last, TapedBlock)
        with torch.no_grad():
            velocity: Tensor | None = None
            for run in runs:
                assert isinstance(run, RoutineRun)
                moving.append(RoutineVelocity(run, velocity, along))
                velocity = moving[-1].output
        assert velocity is not None
        grads: dict[str, Tensor] = {}
        gradients = last.bent(of, to_joint(velocity, len(velocity)), along, grads)
        with torch.no_grad():
            pair: TensorPair | None = (from_joint(gradients[0], len(velocity)), from_joint(gradients[1], len(velocity)))
            while moving:
                assert pair is not None
                pair = moving.pop().back(pair, bool(moving), grads)
        return grads


def can_run_blocks(merged: Merged, norm: Norm, watch: Watcher) -> bool:
    """Returns True where running block by block is possible and some block has a routine."""
    if norm == "eval" or not watch.streams <= WATCHED:
        return False
    pieces = merged.plan.pieces[1:]
    if not merged.parts or any(not isinstance(piece, Inlined) or len(piece.inputs) != 1 for piece in pieces):
        return False
    unknown = {name for name, part in merged.parts if routine_of(part, norm, watch.streams) is None}
    if "block_gradients" in watch.streams and not _chained(merged, unknown):
        return False
    return len(unknown) < len(merged.parts) and {name.split(".", 1)[0] for name in watch.feature_nodes} <= unknown


def _chained(merged: Merged, unknown: Collection[str]) -> bool:
    """Returns True where each block reads the one before it, and all whose outputs are maps have routines."""
    blocks = _blocks(merged)
    in_order = all(after.inputs == (_node(before),) for before, after in pairwise(blocks))
    return in_order and all(piece.name not in unknown or len(piece.block.output_shape) < 3 for piece in blocks)


def routine_of(block: Merged, norm: Norm, streams: Collection[str]) -> Routine | None:
    """Returns the routine of a block, planned once; None where there is none."""
    key = norm, "relus" in streams, "norms" in streams
    if key not in block.routines:
        try:
            block.routines[key] = routine(block, norm == "train", streams)
        except NoRoutineError:
            block.routines[key] = None
    return block.routines[key]  # type: ignore[no-any-return]


def _blocks(merged: Merged) -> list[Inlined]:
    return [piece for piece in merged.plan.pieces if isinstance(piece, Inlined)]


def _node(piece: Inlined) -> int:
    """Returns the node that a block ends with."""
    return piece.start + piece.block.size - len(piece.inputs) - 1


Recorded = Tape | BlockRun
"""a run whose gradients can be taken"""


class TapedBlock:
    """A block that runs on a tape."""

    def __init__(
        self,
        name: str,
        block: Merged,
        norm: Norm,
        weights: Mapping[str, Tensor],
        x: Tensor,
        follow: Collection[str],
        watch: Watcher | None,
        sums: BackSums,
    ) -> None:
        self.name, self.x = name, x
        plan = block.plan.without_norms if norm == "off" else block.plan.with_statistics("batch")
        self.weights = {param: weights[f"{name}.{param}"] for param in plan.weights}
        followed = [param for param in self.weights if f"{name}.{param}" in follow]
        self.tape = Tape(plan, self.weights, (x,), followed, True, None if watch is None else self._named(watch), sums)
        self.output = self.tape.output

    def _named(self, watch: Callable[..., None]) -> Callable[..., None]:
        """Returns the watcher with nodes named as in the whole plan."""

        def see(node: Node, *given: Any) -> None:
            params = tuple(f"{self.name}.{param}" for param in node.params)
            watch(node._replace(name=f"{self.name}.{node.name}", params=params), *given)

        return see

    def back(
        self,
        gradient: Tensor,
        wanted: Collection[str],
        of_input: bool,
        watch: Watcher | None,
        grads: dict[str, Tensor],
    ) -> Tensor | None:
        if gradient.dim() == 5:
            gradient = to_joint(gradient, len(gradient))
        names = [param for param in self.weights if f"{self.name}.{param}" in wanted]
        seen = None if watch is None else self._named(watch.arrived)
        own = self.tape.gradients(gradient, [*names, *([INPUT] if of_input else [])], seen)
        arrived = own.pop(INPUT, None)
        grads |= {f"{self.name}.{param}": value for param, value in own.items()}
        return arrived

    def bent(
        self,
        of: Callable[[Tensor], Tensor],
        velocity: Tensor,
        along: Mapping[str, Tensor],
        grads: dict[str, Tensor],
    ) -> TensorPair:
        """Returns the gradient of `of` for the block's input, and its derivative along velocity and directions."""
        x = self.x.detach().requires_grad_()
        own = {param: value for param, value in self.weights.items() if f"{self.name}.{param}" in along}
        leaves = {param: value.detach().requires_grad_() for param, value in own.items()}
        with torch.enable_grad():
            output = execute(self.tape.plan, self.weights | leaves, (x,))
            first = torch.autograd.grad(of(output), [x, *leaves.values()], create_graph=True)
            directions = [velocity, *(along[f"{self.name}.{param}"] for param in leaves)]
            slope = torch.stack([(g * v).sum() for g, v in zip(first, directions, strict=True)]).sum()
        of_x, *second = torch.autograd.grad(slope, [x, *leaves.values()])
        grads |= {f"{self.name}.{param}": value for param, value in zip(leaves, second, strict=True)}
        return first[0].detach(), of_x
