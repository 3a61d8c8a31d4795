"""The results of a pass of a population, and functions of them that run for all networks at once.

One value for each network is a tensor [P, ...]. Values of layers are ragged, since networks differ in their layers:
values of equal shape are stored in one tensor (`Rows`), so a function of each layer runs once for each shape instead of
once for each layer of each network. Results are copied to the CPU together.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epochzero.engine.failure import REASONS, not_of_the_network
from epochzero.engine.gpu.side_stream import Mark, mark
from epochzero.engine.passes import Item
from epochzero.plan.upload import upload

Numbers = NDArray[np.int64]
NONE = -1
"""the row of a layer that has no value"""


class LayerValues(NamedTuple):
    """Values of some layers, with their networks."""

    values: Tensor | list[Any] | None
    """one for each slot; several layers may share a slot"""
    networks: Numbers
    orders: Numbers
    """sorts the layers of a network"""
    slots: Numbers


class Rows:
    """A value for each layer of each network."""

    def __init__(self, networks: int, pieces: Sequence[LayerValues]) -> None:
        self.size = networks
        groups: dict[Any, list[LayerValues]] = {}
        for piece in pieces:
            groups.setdefault(_shape(piece.values), []).append(piece)
        self._groups = [[p.values for p in group] for shape, group in groups.items() if shape is not None]
        owners, orders, rows, start = [], [], [], 0
        for group in groups.values():
            for values, whose, order, slots in group:
                owners.append(whose)
                orders.append(order)
                rows.append(np.full_like(slots, NONE) if values is None else slots + start)
                start += 0 if values is None else len(values)
        owner = np.concatenate([np.zeros(0, np.int64), *owners])
        ranked = np.lexsort((np.concatenate([np.zeros(0, np.int64), *orders]), owner))
        self.rows: Numbers = np.concatenate([np.zeros(0, np.int64), *rows])[ranked]
        self.owners: Numbers = owner[ranked]
        self.bounds = np.searchsorted(self.owners, np.arange(networks + 1))

    @cached_property
    def groups(self) -> list[Tensor | list[Any]]:
        """The values, one group for each shape."""
        joined: list[Tensor | list[Any]] = []
        for group in self._groups:
            tensors = [values for values in group if isinstance(values, Tensor)]
            if tensors:
                joined.append(tensors[0] if len(tensors) == 1 else torch.cat(tensors))
            else:
                joined.append([value for values in group if isinstance(values, list) for value in values])
        return joined

    @cached_property
    def _flat(self) -> list[Any]:
        return [value for group in self.groups for value in group]

    def of(self, network: int) -> list[Any]:
        """Returns the values of a network's layers in its order; None for layers without a value."""
        own = self.rows[self.bounds[network] : self.bounds[network + 1]].tolist()
        return [None if row == NONE else self._flat[row] for row in own]

    def cut(self, values: Tensor) -> list[Tensor]:
        """Splits values on the CPU, one for each row, into those of each network's layers that have one."""
        rows, bounds = self._kept
        return list(torch.split(values[torch.from_numpy(rows)], np.diff(bounds).tolist()))

    @cached_property
    def lacking(self) -> set[int]:
        """The networks none of whose layers has a value."""
        return set(np.flatnonzero(np.diff(self._kept[1]) == 0).tolist())

    @cached_property
    def _kept(self) -> tuple[Numbers, Numbers]:
        there = self.rows != NONE
        return self.rows[there], np.searchsorted(self.owners[there], np.arange(self.size + 1))

    @cached_property
    def stacked(self) -> bool:
        return all(isinstance(group, Tensor) for group in self.groups)

    def fits(self, other: Rows) -> bool:
        """Returns True if each layer's value is in the same group and row as the other's."""
        return np.array_equal(self.rows, other.rows) and list(map(len, self.groups)) == list(map(len, other.groups))

    @cached_property
    def totals(self) -> Tensor:
        """The sum over each network's layers, whose values must have one shape."""
        (values,) = self.groups
        assert isinstance(values, Tensor)
        everyone = np.arange(self.size)
        if len(values) == self.size and all(np.array_equal(own, everyone) for own in (self.rows, self.owners)):
            return values
        there = self.rows != NONE
        rows, owners = (upload(array[there], values.device) for array in (self.rows, self.owners))
        return values.new_zeros(self.size, *values.shape[1:]).index_add_(0, owners, values[rows])  # [P, ...]


def _shape(values: Tensor | list[Any] | None) -> Any:
    if values is None:
        return None
    return (values.shape[1:], values.dtype) if isinstance(values, Tensor) else "apart"


Source = tuple["ResultColumns", Item]


numbers = itertools.count()


class ResultColumns:
    """The reads of one pass of a population."""

    def __init__(self, size: int, device: torch.device = torch.device("cpu")) -> None:
        self.number = next(numbers)
        self.size, self.device = size, device
        self.facts: dict[str, Sequence[Any]] = {}
        """reads with one plain value for each network"""
        self.tensors: dict[str, Tensor] = {}
        """reads with one tensor for each network, [P, ...]"""
        self.rows: dict[Item, Rows] = {}
        self.whys: dict[str, Callable[[ResultColumns], Mapping[int, Exception]]] = {}
        """functions that return why a read has no value, by network; called late, since they wait for the GPU"""
        self.late: Callable[[ResultColumns], None] | None = None
        """work that needs the run itself, and may wait for the GPU"""
        self.launched: Mark | None = None
        self._known: dict[Any, Any] = {}

    def settle(self) -> None:
        """Releases the run. Nothing is launched for it after this."""
        if self.late is not None:
            self.late(self)
            self.late = None
        self.launched = mark(self.device)

    def read(self, item: Item, network: int) -> Any:
        """Returns the read of one network, or the reason why it has none."""
        name = item[0]
        if network in (refused := self._refused(name)):
            return refused[network]
        if name in self.facts:
            return self.facts[name][network]
        if name in self.tensors:
            return self.tensors[name][network]
        values = self.rows[item].of(network)
        return next((value for value in values if isinstance(value, Exception)), values)

    def refusals(self, items: Iterable[Item]) -> dict[int, Exception]:
        """Returns the networks for which one of the items has no value, with the reasons."""
        reasons: dict[int, Exception] = {}
        for item in items:
            reasons = {**self._refused(item[0]), **reasons}
            if item in self.rows and not self.rows[item].stacked:
                values = {network: self.read(item, network) for network in range(self.size)}
                reasons = {p: value for p, value in values.items() if isinstance(value, Exception)} | reasons
        return reasons

    def _refused(self, name: str) -> Mapping[int, Exception]:
        find = self.whys.get(name)
        return {} if find is None else self._once(find, lambda: find(self))

    def of_layers(self, function: Callable[..., Tensor], sources: Sequence[Source]) -> list[Tensor] | None:
        """Returns for each network `function` of the values of each layer; None if they cannot be computed together."""
        return self._once((function, *_named(sources)), lambda: _of_all_layers(function, sources))  # type: ignore[no-any-return]

    def of_networks(self, function: Callable[..., Any], sources: Sequence[Source]) -> Sequence[Any] | None:
        """Returns `function` of each network's values, where those of layers are summed; None as above.

        The value of a network without such layers is None.
        """
        return self._once((function, *_named(sources)), lambda: _of_all_networks(function, sources))  # type: ignore[no-any-return]

    def _once(self, key: Any, find: Callable[[], Any]) -> Any:
        """Computes a result for all networks when the first one asks for it."""
        if key not in self._known:
            with torch.no_grad():
                self._known[key] = find()
        return self._known[key]


def _of_all_layers(function: Callable[..., Tensor], sources: Sequence[Source]) -> list[Tensor] | None:
    """Returns the results of each network, on the CPU."""
    rows = [columns.rows[item] for columns, item in sources]
    if not all(one.stacked and one.fits(rows[0]) for one in rows) or not rows[0].groups:
        return None
    if sources[0][0].size == 1 and (values := _of_lists(function, [one.of(0) for one in rows])) is not None:
        return [values.cpu()]
    flat = torch.cat([_mapped(function, values) for values in zip(*(one.groups for one in rows), strict=True)])
    return rows[0].cut(flat.cpu())


def _of_all_networks(function: Callable[..., Any], sources: Sequence[Source]) -> Sequence[Any] | None:
    rows = [columns.rows[item] for columns, item in sources if item in columns.rows]
    if not all(one.stacked for one in rows):
        return None
    size, lacking = sources[0][0].size, set[int]().union(*(one.lacking for one in rows))
    if len(lacking) == size:
        return [None] * size
    values = [
        columns.rows[item].totals if item in columns.rows else columns.tensors[item[0]] for columns, item in sources
    ]
    results = _unbound(_mapped(function, values))
    return [None if p in lacking else own for p, own in enumerate(results)] if lacking else results


def _unbound(results: Any) -> Sequence[Any]:
    """Returns the rows of a tensor, or of each of several, on the CPU."""
    return results.cpu().unbind() if isinstance(results, Tensor) else list(zip(*map(_unbound, results), strict=True))


def _named(sources: Sequence[Source]) -> tuple[Any, ...]:
    return tuple((columns.number, item) for columns, item in sources)


LISTS_ON = {"cuda"}
"""kinds of devices where a function of lists of tensors runs for all layers"""


def _of_lists(function: Callable[..., Tensor], lists: Sequence[Sequence[Any]]) -> Tensor | None:
    """Returns [L], the function of each layer's tensors by its form for lists; None where that does not help."""
    many = getattr(function, "of_lists", None)
    if many is None or lists[0][0] is None or lists[0][0].device.type not in LISTS_ON:
        return None
    return torch.stack(list(many(*(list(map(Tensor.contiguous, one)) for one in lists))))


def of_each(layers: Sequence[tuple[Tensor, ...]], function: Callable[..., Tensor]) -> Tensor:
    """Returns [L], the function of each layer's tensors; layers of equal shapes are computed together."""
    if layers and (at_once := _of_lists(function, list(zip(*layers, strict=True)))) is not None:
        return at_once
    alike: dict[tuple[torch.Size, ...], list[int]] = {}
    for i, layer in enumerate(layers):
        alike.setdefault(tuple([tensor.shape for tensor in layer]), []).append(i)
    values = [_of_alike([layers[i] for i in places], function) for places in alike.values()]
    if not values:
        return torch.zeros(0)
    order = torch.tensor([i for places in alike.values() for i in places]).argsort()
    return torch.cat(values)[order.to(values[0].device)]


def _of_alike(layers: Sequence[tuple[Tensor, ...]], function: Callable[..., Tensor]) -> Tensor:
    """Returns the function of each layer; all have the same shapes."""
    if len(layers) == 1:
        return function(*layers[0])[None]
    return _mapped(function, [torch.stack(tensors) for tensors in zip(*layers, strict=True)])  # type: ignore[no-any-return]


def _mapped(function: Callable[..., Any], values: Sequence[Any]) -> Any:
    """Applies the function to each row, as a batch if `vmap` supports it; to a single row as it is, which is faster."""
    if len(values[0]) == 1:
        return _stacked([function(*(value[0] for value in values))])
    try:
        return torch.func.vmap(function, randomness="same")(*values)
    except (RuntimeError, ValueError, TypeError, *REASONS) as error:
        if not_of_the_network(error):
            raise
    results = [function(*row) for row in zip(*values, strict=True)]
    return _stacked(results)


def _stacked(values: Sequence[Any]) -> Any:
    """Stacks tensors of equal shape, and tuples, lists and dictionaries of tensors part by part."""
    first = values[0]
    if isinstance(first, dict):
        return {key: _stacked([value[key] for value in values]) for key in first}
    if isinstance(first, (tuple, list)):
        parts = map(_stacked, zip(*values, strict=True))
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    return torch.stack(list(values))
