"""Feeding what proxies read layer by layer while many networks run side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from epochzero.engine.failure import REASONS, blaming, or_why, out_of_memory
from epochzero.engine.passes import Layer
from epochzero.engine.watch import Item
from epochzero.plan.merge import Member, Merged
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.lockstep import Apart
from epochzero.plan.plan import Node, Plan

Placed = tuple[tuple[int, ...], Any]
"""a value of a stream, with what sorts it"""


class WatcherOfMany:
    """Collects the streams of all networks as the merged plan runs and as gradients arrive."""

    def __init__(self, merged: Merged, networks: int, plan: Plan, items: list[Item]) -> None:
        self.items = items
        self.merged = merged
        self.found: list[dict[Item, list[Placed] | Exception]] = [{item: [] for item in items} for _ in range(networks)]
        self.ends = _block_ends(plan, merged.blocks or ())
        self.one_by_one: set[tuple[Item, tuple[torch.Size, ...]]] = set()
        """functions that `vmap` does not take, with the shapes that they did not take"""
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []

    def __call__(self, node: Node, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        members = self.merged.members.get(node.name, ())
        op = node.op.op if isinstance(node.op, Apart) else node.op
        for item in self.items:
            stream = item[0]
            if stream == "layers" and op.kind:
                self._feed(item, members, node, [output])
            elif stream == "relus" and isinstance(op, ReLU):
                self._feed(item, members, node, [inputs[0]])
            elif stream == "layer_gradients" and op.kind in ("conv", "linear") and output.requires_grad:
                self._await_gradient(item, members, node, inputs[0], output)
            elif stream == "blocks" and node.name in self.ends:
                networks = range(len(self.found))
                block = self.ends[node.name]
                self._feed(item, [Member(p, (block,), "", p, None) for p in networks], node, [output])

    def _await_gradient(self, item: Item, members: Sequence[Member], node: Node, given: Tensor, output: Tensor) -> None:
        def arrived(gradient: Tensor) -> None:
            self._feed(item, members, node, [given, output, gradient])

        self._hooks.append(output.register_hook(arrived))  # type: ignore[no-untyped-call]

    def _feed(self, item: Item, members: Sequence[Member], node: Node, packed: list[Tensor]) -> None:
        """What the stream's function makes of each member's maps."""
        if not members:
            return
        count = self.merged.maps[node.name]
        maps = [_maps(tensor.detach(), count) for tensor in packed]  # [B, maps, C, ...]
        slots = [member.slot for member in members]
        if slots != list(range(count)):
            maps = [tensor[:, slots] for tensor in maps]
        key = (item, tuple(tensor.shape[2:] for tensor in maps))
        function = _of_maps(item, members[0], node)
        values: Sequence[Any]
        if key not in self.one_by_one:
            try:
                with torch.no_grad():
                    values = _unbound(torch.func.vmap(function, in_dims=1)(*maps), len(members))
            except (RuntimeError, ValueError, TypeError, *REASONS) as error:
                if out_of_memory(error):
                    raise
                self.one_by_one.add(key)
        if key in self.one_by_one:
            values = [self._one(function, [tensor[:, i] for tensor in maps]) for i in range(len(members))]
        for member, value in zip(members, values, strict=True):
            so_far = self.found[member.network]
            collected = so_far[item]
            if isinstance(value, Exception):
                so_far[item] = value
            elif not isinstance(collected, Exception):
                collected.append((member.order, value))

    @staticmethod
    def _one(function: Callable[..., Any], maps: list[Tensor]) -> Any:
        def find() -> Any:
            with torch.no_grad(), blaming("the proxy"):
                return function(*maps)

        return or_why(find)

    def collected(self) -> list[dict[Item, Any]]:
        """Of each network, each stream in the network's own order, or why there is none."""
        return [
            {
                item: so_far if isinstance(so_far, Exception) else [value for _, value in sorted(so_far, key=_order)]
                for item, so_far in of_network.items()
            }
            for of_network in self.found
        ]

    def release(self) -> None:
        """Take the hooks off the graph, so that no later gradient is taken for the loss's."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()


def _maps(packed: Tensor, count: int) -> Tensor:
    """[B, maps * C, ...] as [B, maps, C, ...]: a view, in any memory format."""
    maps: Tensor = packed.unflatten(1, (count, packed.shape[1] // count))  # type: ignore[no-untyped-call]
    return maps


def _order(placed: Placed) -> tuple[int, ...]:
    return placed[0]


def _of_maps(item: Item, member: Member, node: Node) -> Callable[..., Any]:
    """The stream's function of one network's maps."""
    stream, function = item
    assert function is not None
    if stream != "layer_gradients":
        return function
    op = node.op.op if isinstance(node.op, Apart) else node.op
    assert op.kind and member.weight is not None

    def of_layer(given: Tensor, output: Tensor, gradient: Tensor) -> Any:
        name = type(op).__name__.lower().removeprefix("grouped")
        return function(Layer(op.kind, name, member.name, (given,), output, member.weight, member.shape), gradient)

    return of_layer


def _unbound(found: Any, count: int) -> list[Any]:
    """What `vmap` gave, network by network."""
    if isinstance(found, Tensor):
        return list(found.unbind(0))
    if isinstance(found, tuple):
        return list(zip(*(_unbound(part, count) for part in found), strict=True))
    raise TypeError("only tensors and tuples of them can be taken apart")


def _block_ends(plan: Plan, blocks: Sequence[str]) -> dict[str, int]:
    """For the last node of each block, the place of the block."""
    last = {node.name.split(".", 1)[0]: node.name for node in plan.nodes if "." in node.name}
    return {last[block]: at for at, block in enumerate(blocks)}
