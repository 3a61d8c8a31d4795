r"""Tangent kernels: inner products of the samples' gradients.

    K_ij = <d a_i / d theta, d a_j / d theta>        a_i the loss, a logit, or the sum of logits of sample i

Batch norm in training couples the samples: a_i depends on every input of the batch. So each row takes one backward
pass through the whole batch, which is exact for every network. Where no layer mixes the samples, each of them runs
alone, at a fraction of the work, and its graph is gone when the next one runs. Gradients are kept for a block of
parameters at a time, so that memory stays bounded; a parameter too large for that is cut, and each slice takes backward
passes of its own.
On a GPU, which a single row leaves idle, the backward passes of many rows run as one batched pass (`vmap`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from epochzero.engine.loss import LABEL, Loss, label_logits

ROWS_BYTES = 2 * 2**30
"""the most memory that the gradients of one block of parameters take; a batched pass takes as much again"""
ROWS_TOGETHER = 64
"""the most rows that one batched backward pass takes on a GPU"""


class ParameterSlice(NamedTuple):
    """A range of the numbers of a flattened parameter."""

    leaf: Tensor
    start: int
    stop: int


def rows_of(kind: str, logits: Tensor, y: Tensor | None, loss: Loss = LABEL) -> Tensor:
    """Returns the numbers that are differentiated, one for each row of the kernel."""
    if kind == "kernel_outputs":
        return logits.flatten()  # [B*K]
    if kind == "kernel_sum":
        return logits.flatten(1).sum(1)  # [B]
    assert y is not None
    return label_logits(logits, y) if kind == "kernel_label" else loss.each(logits, y)  # [B]


def tangent_kernel(rows: Tensor, leaves: list[Tensor]) -> Tensor:
    """Returns the Gram matrix of the rows' gradients, in double precision. Keeps the graph."""
    if rows.is_cuda and rows.requires_grad:
        return _kernel(rows, leaves, lambda block: _batched(rows, block))
    return _kernel(rows, leaves, lambda block: _one_by_one(rows, block, len(rows)))


def tangent_kernel_apart(
    rows: Tensor, rows_of_sample: Callable[[int], Tensor], samples: int, leaves: list[Tensor]
) -> Tensor:
    """Returns the same for a network in which no layer mixes samples: each runs alone, and `rows` needs no graph."""

    def find(block: list[ParameterSlice]) -> Tensor:
        alone = (row for i in range(samples) for row in rows_of_sample(i))
        return _one_by_one(alone, block, len(rows))

    return _kernel(rows, leaves, find)


def _kernel(rows: Tensor, leaves: list[Tensor], find: Callable[[list[ParameterSlice]], Tensor]) -> Tensor:
    kernel = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=rows.device)
    for block in _blocks(leaves, len(rows)):
        kernel += _gram(find(block))
    return kernel


def _gram(jacobian: Tensor) -> Tensor:
    return (jacobian @ jacobian.mT).double()  # of [rows, numbers of the block]


def _blocks(leaves: list[Tensor], rows: int) -> Iterator[list[ParameterSlice]]:
    """Yields parameters in groups whose gradients fit into memory; a parameter that does not fit is cut."""
    if not leaves:
        return
    room = max(1, ROWS_BYTES // (rows * leaves[0].element_size()))
    block: list[ParameterSlice] = []
    free = room
    for leaf in leaves:
        for start in range(0, leaf.numel(), room):
            piece = ParameterSlice(leaf, start, min(start + room, leaf.numel()))
            if piece.stop - piece.start > free:
                yield block
                block, free = [], room
            block.append(piece)
            free -= piece.stop - piece.start
    if block:
        yield block


def _empty(rows: int, block: list[ParameterSlice]) -> Tensor:
    return block[0].leaf.new_empty(rows, sum(piece.stop - piece.start for piece in block))


def _one_by_one(rows: Iterable[Tensor], block: list[ParameterSlice], count: int) -> Tensor:
    """Returns the gradients of all rows [rows, numbers of the block]; frees each row before the next."""
    jacobian = _empty(count, block)
    for i, row in enumerate(rows):
        jacobian[i] = _gradient(row, block)
    return jacobian


def _batched(rows: Tensor, block: list[ParameterSlice]) -> Tensor:
    """Returns the same, with as many rows in one backward pass as fit into memory."""
    whole = sum(piece.leaf.numel() * piece.leaf.element_size() for piece in block)
    together = max(1, min(ROWS_TOGETHER, ROWS_BYTES // whole))
    jacobian = _empty(len(rows), block)
    one_hot = torch.eye(len(rows), dtype=rows.dtype, device=rows.device)
    for i in range(0, len(rows), together):
        some = slice(i, i + together)
        jacobian[some] = torch.func.vmap(lambda row: _gradient(rows, block, row))(one_hot[some])
    return jacobian


def _gradient(of: Tensor, block: list[ParameterSlice], along: Tensor | None = None) -> Tensor:
    leaves = [piece.leaf for piece in block]
    if not of.requires_grad:
        return _empty(1, block)[0].zero_()
    gradients = torch.autograd.grad(of, leaves, along, retain_graph=True, allow_unused=True)
    zeros = (torch.zeros_like(leaf) if g is None else g for g, leaf in zip(gradients, leaves, strict=True))
    return torch.cat([g.flatten()[piece.start : piece.stop] for g, piece in zip(zeros, block, strict=True)])
