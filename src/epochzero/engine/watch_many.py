"""Feeding what proxies read layer by layer while many networks run side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from epochzero.engine.crowd import Piece, Rows
from epochzero.engine.failure import REASONS, blaming, or_why, out_of_memory
from epochzero.engine.passes import Layer
from epochzero.engine.watch import Item
from epochzero.plan.merge import Members, Merged
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.lockstep import Apart
from epochzero.plan.plan import Node, Plan


class WatcherOfMany:
    """Collects the streams of all networks as the merged plan runs and as gradients arrive."""

    def __init__(self, merged: Merged, networks: int, plan: Plan, items: list[Item]) -> None:
        self.items = items
        self.merged = merged
        self.size = networks
        self.found: dict[Item, list[Piece]] = {item: [] for item in items}
        self.ends = _block_ends(plan, merged.blocks or ())
        self.one_by_one: set[tuple[Item, tuple[torch.Size, ...]]] = set()
        """functions that `vmap` does not take, with the shapes that they did not take"""
        self._waiting: dict[str, tuple[Tensor, Tensor]] = {}
        """layers whose output's gradient is wanted: input and output"""

    def __call__(self, node: Node, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        members = self.merged.members.get(node.name)
        op = node.op.op if isinstance(node.op, Apart) else node.op
        for item in self.items:
            stream = item[0]
            if stream == "blocks" and node.name in self.ends:
                networks = np.arange(self.size)
                everyone = Members(networks, np.full_like(networks, self.ends[node.name]), networks, ())
                self._feed(item, everyone, node, [output])
            elif members is None:
                continue
            elif stream == "layers":
                self._feed(item, members, node, [output])
            elif stream == "relus" and isinstance(op, ReLU):
                self._feed(item, members, node, [inputs[0]])
            elif stream == "layer_gradients" and op.kind in ("conv", "linear"):
                self._waiting[node.name] = (inputs[0], output)

    def arrived(self, node: Node, gradient: Tensor) -> None:
        """The loss gradient of a node's output."""
        if node.name in self._waiting:
            for item in self.items:
                if item[0] == "layer_gradients":
                    self._feed(item, self.merged.members[node.name], node, [*self._waiting[node.name], gradient])

    def _feed(self, item: Item, members: Members, node: Node, packed: list[Tensor]) -> None:
        """What the stream's function makes of each map of the node."""
        count = self.merged.maps[node.name]
        maps = [_maps(tensor.detach(), count) for tensor in packed]  # [B, maps, C, ...]
        values = self._values(item, _of_maps(item, members, node), maps)
        self.found[item].append(Piece(values, members.networks, members.orders, members.slots))

    def _values(self, item: Item, function: Callable[..., Any], maps: list[Tensor]) -> Tensor | list[Any] | None:
        key = (item, tuple(tensor.shape[2:] for tensor in maps))
        if key not in self.one_by_one:
            try:
                with torch.no_grad():
                    found = torch.func.vmap(function, in_dims=1)(*maps)
                if isinstance(found, Tensor):
                    return found
            except (RuntimeError, ValueError, TypeError, *REASONS) as error:
                if out_of_memory(error):
                    raise
            self.one_by_one.add(key)
        values = [self._one(function, [tensor[:, i] for tensor in maps]) for i in range(maps[0].shape[1])]
        if all(value is None for value in values):
            return None
        if isinstance(values[0], Tensor) and all(_alike(values[0], value) for value in values):
            return torch.stack(values)
        return values

    @staticmethod
    def _one(function: Callable[..., Any], maps: list[Tensor]) -> Any:
        def find() -> Any:
            with torch.no_grad(), blaming("the proxy"):
                return function(*maps)

        return or_why(find)

    def collected(self) -> dict[Item, Rows]:
        """Each stream of all networks."""
        return {item: Rows(self.size, pieces) for item, pieces in self.found.items()}


def _maps(packed: Tensor, count: int) -> Tensor:
    """[B, maps * C, ...] as [B, maps, C, ...]: a view, in any memory format."""
    maps: Tensor = packed.unflatten(1, (count, packed.shape[1] // count))  # type: ignore[no-untyped-call]
    return maps


def _alike(one: Tensor, other: Any) -> bool:
    return isinstance(other, Tensor) and one.shape == other.shape and one.dtype == other.dtype


def _of_maps(item: Item, members: Members, node: Node) -> Callable[..., Any]:
    """The stream's function of one network's maps."""
    stream, function = item
    assert function is not None
    if stream != "layer_gradients":
        return function
    op = node.op.op if isinstance(node.op, Apart) else node.op
    kind = op.kind
    assert kind

    def of_layer(given: Tensor, output: Tensor, gradient: Tensor) -> Any:
        name = type(op).__name__.lower().removeprefix("grouped")
        layer = Layer(kind, name, node.name, (given,), output, node.params[0], members.weight_shape)
        return function(layer, gradient)

    return of_layer


def _block_ends(plan: Plan, blocks: tuple[str, ...]) -> dict[str, int]:
    """For the last node of each block, the place of the block."""
    last = {node.name.split(".", 1)[0]: node.name for node in plan.nodes if "." in node.name}
    return {last[block]: at for at, block in enumerate(blocks)}
