r"""Tangent kernels: inner products of the samples' gradients.

    K_ij = <d a_i / d theta, d a_j / d theta>        a_i the loss, a logit, or the sum of logits of sample i

Batch norm in training couples the samples: a_i depends on every input of the batch. So each row takes one backward
pass through the whole batch, which is exact for every network. Where no layer mixes the samples, each of them runs
alone, at a fraction of the work. Gradients are kept for a block of parameters at a time, so that memory stays bounded.
On a GPU, which one row leaves idle, the backward passes of many rows run as one batched pass (`vmap`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

ROWS_BYTES = 2 * 2**30
"""the most memory that the gradients of one block of parameters may take"""
ROWS_TOGETHER = 64
"""the rows that one batched backward pass takes on a GPU"""


def rows_of(kind: str, logits: Tensor, y: Tensor | None) -> Tensor:
    """What is differentiated: one number for each row of the kernel."""
    if kind == "kernel_outputs":
        return logits.flatten()  # [B*K]
    if kind == "kernel_sum":
        return logits.flatten(1).sum(1)  # [B]
    assert y is not None
    if kind == "kernel_label":
        return logits.gather(1, y[:, None])[:, 0]  # [B]
    return F.cross_entropy(logits, y, reduction="none")  # [B]


def tangent_kernel(rows: Tensor, leaves: list[Tensor]) -> Tensor:
    """The Gram matrix of the rows' gradients, in double precision. Keeps the graph."""
    kernel = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=rows.device)
    if not rows.requires_grad:
        return kernel
    for block in _blocks(leaves, len(rows)):
        kernel += _gram(_batched(rows, block) if rows.is_cuda else torch.stack([_gradient(row, block) for row in rows]))
    return kernel


def tangent_kernel_apart(rows_of_sample: Callable[[int], Tensor], samples: int, leaves: list[Tensor]) -> Tensor:
    """The same for a network in which no layer mixes the samples: a run for each of them in place of the batch's."""
    each = [rows_of_sample(i) for i in range(samples)]
    rows = sum(len(one) for one in each)
    kernel = torch.zeros(rows, rows, dtype=torch.float64, device=each[0].device)
    if not each[0].requires_grad:
        return kernel
    for block in _blocks(leaves, rows):
        kernel += _gram(torch.stack([_gradient(row, block) for one in each for row in one]))
    return kernel


def _gram(jacobian: Tensor) -> Tensor:
    return (jacobian @ jacobian.mT).double()  # of [rows, parameters of the block]


def _blocks(leaves: list[Tensor], rows: int) -> Iterator[list[Tensor]]:
    """The parameters in groups whose gradients fit into memory."""
    block: list[Tensor] = []
    size = 0
    for leaf in leaves:
        bytes_needed = leaf.numel() * leaf.element_size() * rows
        if block and size + bytes_needed > ROWS_BYTES:
            yield block
            block, size = [], 0
        block.append(leaf)
        size += bytes_needed
    if block:
        yield block


def _batched(rows: Tensor, leaves: list[Tensor]) -> Tensor:
    """The gradients of all rows, many in one backward pass."""
    one_hot = torch.eye(len(rows), dtype=rows.dtype, device=rows.device)
    jacobian: Tensor = torch.func.vmap(lambda row: _gradient(rows, leaves, row), chunk_size=ROWS_TOGETHER)(one_hot)
    return jacobian


def _gradient(of: Tensor, leaves: list[Tensor], along: Tensor | None = None) -> Tensor:
    found = torch.autograd.grad(of, leaves, along, retain_graph=True, allow_unused=True)
    zeros = (torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True))
    return torch.cat([g.flatten() for g in zeros])
