"""Tangent kernels of many networks that run as one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from epochzero.engine import foreach
from epochzero.engine.gpu.block_run import Recorded
from epochzero.engine.gpu.graph import capture
from epochzero.engine.single.kernels import ROWS_BYTES, rows_of
from epochzero.plan.upload import upload

if TYPE_CHECKING:
    from epochzero.engine.population.population import Population


def tangent_kernels(
    kind: str, y: Tensor | None, tape: Recorded, packed: Mapping[str, Tensor], names: list[str], population: Population
) -> Tensor:
    """Returns the tangent kernel of each network: the backward pass of a row serves all of them."""
    with torch.enable_grad():
        joint = tape.output.detach().requires_grad_()
        rows = torch.stack([rows_of(kind, own, y) for own in population.by_network(joint)]).sum(0)  # [rows]
    count = len(rows)
    starts = [torch.autograd.grad(row, [joint], retain_graph=True)[0] for row in rows]
    kernels = torch.zeros(population.size, count, count, dtype=torch.float64, device=joint.device)
    room = ROWS_BYTES if not joint.is_cuda else max(ROWS_BYTES, torch.cuda.mem_get_info(joint.device)[0] // 3)
    for block in _blocks(names, packed, count, room):
        jacobians = {name: packed[name].new_zeros(count, *packed[name].shape) for name in block}
        for i, by_name in enumerate(_rows_back(tape, starts, block)):
            foreach.copy_([jacobians[name][i] for name in by_name], list(by_name.values()))
        for name, jacobian in jacobians.items():
            networks = upload(np.array([network for network, _ in population.merged.packs[name]]), joint.device)
            own = jacobian.view(count, len(networks), -1).transpose(0, 1)  # [k, rows, numbers]
            kernels.index_add_(0, networks, (own @ own.mT).double())
    return kernels


def _rows_back(tape: Recorded, starts: list[Tensor], names: list[str]) -> Iterator[dict[str, Tensor]]:
    """Yields the gradients of one row after the other; the next row may overwrite them."""
    if not starts[0].is_cuda:
        yield from (tape.gradients(start, names) for start in starts)
        return
    yield tape.gradients(starts[0], names)
    start = starts[0].clone()
    captured = capture(lambda: tape.gradients(start, names), torch.cuda.current_stream())
    for other in starts[1:]:
        start.copy_(other)
        if captured is None:
            yield tape.gradients(start, names)
        else:
            captured.replay()
            yield captured.result


def _blocks(names: list[str], packed: Mapping[str, Tensor], rows: int, room: int) -> Iterator[list[str]]:
    """Yields packed parameters in groups whose gradients fit into memory."""
    block: list[str] = []
    size = 0
    for name in names:
        needed = rows * packed[name].nbytes
        if block and size + needed > room:
            yield block
            block, size = [], 0
        block.append(name)
        size += needed
    if block:
        yield block
