"""Collects the streams that proxies read while many networks run as one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epochzero.engine.failure import REASONS, blaming, not_of_the_network, or_why
from epochzero.engine.gpu.routine_run import ScatteredMaps
from epochzero.engine.passes import Item, Layer, Summed, adds_onto, of_many, takes_spread
from epochzero.engine.population.columns import NONE, LayerValues, Numbers, Rows
from epochzero.engine.population.grouped_ops import Apart
from epochzero.engine.population.merged import Members, Merged
from epochzero.engine.postponed import Postponed
from epochzero.engine.single.watch import has_positions, random_signs, sent_back, shown_to
from epochzero.plan.plan import Node, Plan
from epochzero.plan.upload import upload

Places = dict[tuple[str, str], Tensor]
"""indices of networks and maps for nodes of a merged plan, on the device"""


class WatcherOfMany:
    """Collects the streams of all networks as the merged plan runs and as gradients arrive."""

    def __init__(
        self, merged: Merged, networks: int, plan: Plan, items: list[Item], places: Places, seed: int = 0
    ) -> None:
        self.items = items
        self.places = places
        self.seed = seed
        self.merged = merged
        self.size = networks
        self.postponed = Postponed()
        self.values: dict[Item, list[LayerValues]] = {item: [] for item in items}
        self.ends = _block_ends(plan, merged.blocks or ())
        self.one_by_one: set[tuple[Item, tuple[torch.Size, ...]]] = set()
        """functions that `vmap` does not support, with the shapes"""
        self.apart = False
        """true if such a function returned a value"""
        self._totals: dict[Item, tuple[Tensor, NDArray[np.bool_]]] = {}
        """for summed streams: the sums [P, ...], and a mask of the networks that have one"""
        self._ends_of_maps = _last_maps(plan, merged) if any(stream == "features" for stream, _ in items) else {}
        self._block: Tensor | None = None
        """the last block's feature maps, with the graph"""
        self._begun = False
        """true after the end of the first block"""
        self._pairs = 0
        self._waiting: dict[str, tuple[Tensor, Tensor]] = {}
        """the input and output of layers whose output's gradient is read"""

    @property
    def streams(self) -> set[str]:
        return {stream for stream, _ in self.items}

    @property
    def feature_nodes(self) -> Collection[str]:
        return self._ends_of_maps

    def __call__(self, node: Node, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        members = self.merged.members.get(node.name)
        if node.name in self.ends and output.dim() > 2 and self._asked("block_gradients"):
            self._send_back(node, output)
        for item in self.items:
            stream = item[0]
            if stream == "blocks" and node.name in self.ends:
                self._feed(item, self._everyone(self.ends[node.name]), node, [output])
            elif members is None:
                continue
            elif (shown := shown_to(stream, node.op.kind, node.op.name, inputs, output)) is not None:
                self._feed(item, members, node, [shown])
            elif stream == "features" and node.name in self._ends_of_maps:
                self._feed(item, self._ends_of_maps[node.name], node, [output])
            elif stream == "layer_gradients" and node.op.kind in ("conv", "linear"):
                self._waiting[node.name] = (inputs[0], output)

    def _everyone(self, order: int) -> Members:
        """Returns one map of each network."""
        networks = np.arange(self.size)
        return Members(networks, np.full_like(networks, order), networks)

    def _send_back(self, node: Node, output: Tensor) -> None:
        """Sends random signs from this block to the one before it, the same for every network.

        The graph before this block is not needed after that and is freed.
        """
        before, self._block = self._block, output
        if before is None:
            return
        own = output.detach().unflatten(1, (self.size, -1))[:, 0]  # type: ignore[no-untyped-call]  # [B, C, ...]
        signs = random_signs(own, self.seed, self._pairs)
        signs = signs.repeat(1, self.size, *(1 for _ in own.shape[2:]))  # [B, P*C, ...]
        arrived = sent_back(signs, output, before, retain_graph=False)
        self._pair(node, [_maps(sent.detach(), self.size) for sent in (arrived, signs)])

    def arrived(self, node: Node, gradient: Tensor) -> None:
        """Receives the loss gradient of a node's output."""
        if node.name in self._waiting:
            for item in self._asked("layer_gradients"):
                self._feed(item, self.merged.members[node.name], node, [*self._waiting[node.name], gradient])

    def spread(self, stream: str, node: Node, which: Numbers, *maps: ScatteredMaps) -> None:
        """Receives the values of `which` maps of a node, which may be in an arena."""
        members = self.merged.members[node.name]
        place = np.full(self.merged.maps[node.name], NONE)
        place[which] = np.arange(len(which))
        there = place[members.slots] != NONE
        own = Members(members.networks[there], members.orders[there], place[members.slots[there]])
        for item in self._asked(stream):
            given = list(maps) if takes_spread(item[1]) else [one.dense for one in maps]
            self._add(item, own, node, given, f"{stream} of {','.join(sorted(self.streams))}")

    def ended(self, node: Node, maps: Tensor, back: Callable[[Tensor], Tensor]) -> None:
        """Receives the output [P, B, H, W, C] of the block that ends with the node, and its backward pass."""
        if node.name not in self.ends:
            return
        for item in self._asked("blocks"):
            self._add(item, self._everyone(self.ends[node.name]), node, [maps.permute(1, 0, 4, 2, 3)], "blocks")
        if self._asked("block_gradients"):
            if self._begun:
                signs = random_signs(maps[0].permute(0, 3, 1, 2), self.seed, self._pairs)  # [B, C, H, W]
                signs = signs.permute(0, 2, 3, 1).expand_as(maps).contiguous()
                self._pair(node, [sent.permute(1, 0, 4, 2, 3) for sent in (back(signs), signs)])
            self._begun = True

    def _pair(self, node: Node, maps: list[Tensor]) -> None:
        """Adds a pair: the gradient at the block before, and the signs sent from this one, both [B, P, C, ...]."""
        for item in self._asked("block_gradients"):
            self._add(item, self._everyone(self._pairs), node, maps, "pair")
        self._pairs += 1

    def _asked(self, stream: str) -> list[Item]:
        return [item for item in self.items if item[0] == stream]

    def _feed(self, item: Item, members: Members, node: Node, packed: list[Tensor]) -> None:
        """Adds the values of the stream's function of each map of the node."""
        count = self.merged.maps[node.name]
        maps = [_maps(tensor.detach(), count) for tensor in packed]  # [B, maps, C, ...]
        slots = members.slots
        if item[0] == "features" and len(slots) < count:  # the other maps are not needed
            index = self._index(node, "last", slots, maps[0])
            maps, slots = [tensor[:, index] for tensor in maps], np.arange(len(slots))
        self._add(item, members._replace(slots=slots), node, maps, item[0])

    def _add(self, item: Item, members: Members, node: Node, maps: list[Any], kind: str) -> None:
        """Adds the values of maps [B, M, C, ...], or of maps in an arena."""
        if (onto := adds_onto(item[1])) is not None:
            self._add_onto(item, onto, members, node, maps, kind)
            return
        many = of_many(item[1])
        if self.size == 1 and not isinstance(item[1], Summed) and not isinstance(maps[0], ScatteredMaps):
            with torch.no_grad():
                if self._of_maps(item[0], partial(self._postponed, item, members), node)(*maps):
                    return
        if many is None:
            values = self._values(item, self._of_maps(item[0], item[1], node), maps)
        else:
            with torch.no_grad():
                values = self._of_maps(item[0], many, node)(*maps)
        if (
            isinstance(item[1], Summed)
            and isinstance(values, Tensor)
            and self._added(item, values, members, node, kind)
        ):
            return
        self.values[item].append(LayerValues(values, members.networks, members.orders, members.slots))

    def _postponed(self, item: Item, members: Members, *maps: Any) -> bool:
        return self.postponed.takes(item, members, maps)

    def _add_onto(
        self, item: Item, onto: Callable[..., Any], members: Members, node: Node, maps: list[Any], kind: str
    ) -> None:
        """Adds to the totals; each map belongs to one network, though several of its layers may share it."""
        count = len(maps[0]) if isinstance(maps[0], ScatteredMaps) else maps[0].shape[1]
        owners = np.zeros(count, np.int64)
        owners[members.slots] = members.networks
        seen = np.zeros(count, np.bool_)
        seen[members.slots] = True
        if not seen.all():
            index = self._index(node, f"{kind} seen", np.flatnonzero(seen), _tensor(maps[0]))
            maps = [_chosen(one, index) for one in maps]
        total, there = self._totals.get(item, (None, np.zeros(self.size, np.bool_)))
        owner = self._index(node, f"{kind} whose", owners[seen].astype(np.int32), _tensor(maps[0]))
        with torch.no_grad():
            total = onto(total, self.size, owner, *maps)
        if total is not None:
            there[members.networks] = True
            self._totals[item] = total, there

    def _of_maps(self, stream: str, function: Callable[..., Any] | None, node: Node) -> Callable[..., Any]:
        """Returns the stream's function of maps."""
        assert function is not None
        if stream != "layer_gradients":
            return function
        kind = node.op.kind
        assert kind
        weight = self.merged.plan.weights[node.params[0]].shape
        count = 1 if isinstance(node.op, Apart) else self.merged.maps[node.name]
        shape = (weight[0] // count, *weight[1:])

        def of_layer(given: Any, output: Any, gradient: Any) -> Any:
            return function(Layer(kind, node.op.name, node.name, (given,), output, node.params[0], shape), gradient)

        return of_layer

    def _index(self, node: Node, which: str, numbers: Numbers, like: Tensor) -> Tensor:
        """Uploads indices once for all runs."""
        key = (node.name, which)
        if key not in self.places:
            self.places[key] = upload(numbers, like.device)
        return self.places[key]

    def _added(self, item: Item, values: Tensor, members: Members, node: Node, kind: str) -> bool:
        """Adds the values to the totals; returns False if their shape or type differs."""
        if item not in self._totals:
            zeros = values.new_zeros(self.size, *values.shape[1:])
            self._totals[item] = zeros, np.zeros(self.size, np.bool_)
        total, there = self._totals[item]
        if total.shape[1:] != values.shape[1:] or total.dtype != values.dtype:
            return False
        owners = self._index(node, f"{kind} owners", members.networks, values)
        total.index_add_(0, owners, values[self._index(node, f"{kind} slots", members.slots, values)])
        there[members.networks] = True
        return True

    def _values(self, item: Item, function: Callable[..., Any], maps: list[Tensor]) -> Tensor | list[Any] | None:
        key = (item, tuple(tensor.shape[2:] for tensor in maps))
        if key not in self.one_by_one:
            try:
                with torch.no_grad():
                    batched = torch.func.vmap(function, in_dims=1)(*maps)
                if isinstance(batched, Tensor):
                    return batched
            except (RuntimeError, ValueError, TypeError, *REASONS) as error:
                if not_of_the_network(error):
                    raise
            self.one_by_one.add(key)
        values = [self._one(function, [tensor[:, i] for tensor in maps]) for i in range(maps[0].shape[1])]
        if all(value is None for value in values):
            return None
        self.apart = True
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
        """Returns each stream of all networks."""
        return {item: Rows(self.size, pieces) for item, pieces in self.pieces().items()}

    def pieces(self) -> dict[Item, list[LayerValues]]:
        for item, members, values in self.postponed.values():
            own = [values] * len(members.slots) if isinstance(values, Exception) else values
            self.values[item].append(LayerValues(own, members.networks, members.orders, members.slots))
        for item, (total, there) in self._totals.items():
            networks = np.flatnonzero(there)
            self.values[item].append(LayerValues(total, networks, np.zeros_like(networks), networks))
        return self.values


def _tensor(maps: Tensor | ScatteredMaps) -> Tensor:
    return maps.place.arena if isinstance(maps, ScatteredMaps) else maps


def _chosen(maps: Tensor | ScatteredMaps, index: Tensor) -> Tensor | ScatteredMaps:
    """Returns some of the maps."""
    return maps._replace(slots=maps.slots[index]) if isinstance(maps, ScatteredMaps) else maps[:, index]


def _maps(packed: Tensor, count: int) -> Tensor:
    """Returns [B, maps * C, ...] as [B, maps, C, ...]: a view, in any memory format."""
    maps: Tensor = packed.unflatten(1, (count, packed.shape[1] // count))  # type: ignore[no-untyped-call]
    return maps


def _alike(one: Tensor, other: Any) -> bool:
    return isinstance(other, Tensor) and one.shape == other.shape and one.dtype == other.dtype


def _block_ends(plan: Plan, blocks: tuple[str, ...]) -> dict[str, int]:
    """Returns the index of each block by its last node."""
    last = {node.name.split(".", 1)[0]: node.name for node in plan.nodes if "." in node.name}
    return {last[block]: at for at, block in enumerate(blocks)}


def _last_maps(plan: Plan, merged: Merged) -> dict[str, Members]:
    """Returns for each node with some networks' last feature maps those networks with their maps."""
    last: dict[int, tuple[int, int, str]] = {}
    for node in plan.nodes:
        members = merged.members.get(node.name)
        if members is not None and has_positions((1, *node.shape)):
            for network, order, slot in zip(*(column.tolist() for column in members[:3]), strict=True):
                last[network] = max(last.get(network, (-1, 0, "")), (order, slot, node.name))
    last_of_node: dict[str, list[tuple[int, int, int]]] = {}
    for network, (order, slot, name) in last.items():
        last_of_node.setdefault(name, []).append((network, order, slot))
    columns = {name: np.array(rows, np.int64).T for name, rows in last_of_node.items()}
    return {name: Members(networks, orders, slots) for name, (networks, orders, slots) in columns.items()}
