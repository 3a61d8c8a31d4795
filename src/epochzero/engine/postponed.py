"""Values of layers that are computed together at the end of a pass: where launches count, one for many layers.

A stream's function may come in two stages, `together(..., staged=(first, last))`: `first` makes something small of each
layer as the network runs, and `last` the values of all layers for which that has one shape. Outputs that are small
themselves, as those of a single sample, wait for the function of many networks.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from epochzero.engine.failure import blaming, or_why
from epochzero.engine.passes import Item, Layer, of_many, staged

POSTPONE_ON = {"cuda"}
"""kinds of devices"""
SMALL = 2**22
"""bytes of an output that waits"""
MOST = 2**28
"""bytes of all of them"""


class Postponed:
    """Values that layers leave to be computed at the end."""

    def __init__(self) -> None:
        self._kept: dict[Any, list[tuple[Any, Tensor]]] = {}
        self._bytes = 0

    def takes(self, item: Item, place: Any, maps: tuple[Any, ...], copies: bool = False) -> bool:
        """Keeps what the stream needs of maps [B, M, ...]; returns False if their value has to be computed now.

        `copies` is True where the network may write into its outputs later.
        """
        if _device(maps).type not in POSTPONE_ON:
            return False
        if (stages := staged(item[1])) is not None:
            first, last = stages
            small, number = first(*maps)
            finish: tuple[Any, ...] = (last, number)
        elif (many := of_many(item[1])) is not None and len(maps) == 1 and isinstance(maps[0], Tensor):
            if maps[0].nbytes > min(SMALL, MOST - self._bytes):
                return False
            small, finish = maps[0].clone() if copies else maps[0], (many,)
            self._bytes += small.nbytes
        else:
            return False
        key = item, finish, len(small), small.shape[2:], small.dtype
        self._kept.setdefault(key, []).append((place, small))
        return True

    def values(self) -> Iterator[tuple[Item, Any, Any]]:
        """Returns for each kept place the item and its values [M, ...], None, or the reason why there is none."""
        for (item, (last, *number), *_), kept in self._kept.items():
            joined = kept[0][1] if len(kept) == 1 else torch.cat([small for _, small in kept], 1)  # [B, L, ...]
            found = or_why(partial(_blaming, last, joined, *number))
            widths = [small.shape[1] for _, small in kept]
            each = torch.split(found, widths) if isinstance(found, Tensor) else [found] * len(kept)
            for (place, _), own in zip(kept, each, strict=True):
                yield item, place, own
        self._kept.clear()


def _blaming(function: Any, *given: Any) -> Any:
    with torch.no_grad(), blaming("the proxy"):
        return function(*given)


def _device(maps: tuple[Any, ...]) -> torch.device:
    first = maps[0]
    tensor = first.output if isinstance(first, Layer) else first
    return tensor.device if isinstance(tensor, Tensor) else torch.device("meta")
