r"""Gradients of the loss, and the Hessian's product with them.

    H g = d <g, dL/dW> / dW        with g = dL/dW held fixed

The graph of the gradients keeps every activation once more. Where no layer mixes the samples, L is the mean of their
losses and H of their Hessians, so the product is summed over a few samples at a time: exact, in bounded memory, for one
more forward and backward pass. The number that run together depends only on the first sample, which runs alone: never
on free memory, nor on the other reads of the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from epochzero.engine import foreach
from epochzero.engine.failure import blaming

GRAPH_BYTES = 3 * 2**30
"""the most memory for the graph of some samples' gradients, unless that of a single sample needs more"""


def gradients(
    of: Tensor, leaves: Sequence[Tensor], create_graph: bool = False, retain_graph: bool = False
) -> list[Tensor]:
    """Returns the gradient for each leaf, zeros for leaves that nothing depends on."""
    if not of.requires_grad or not leaves:
        return [torch.zeros_like(leaf) for leaf in leaves]
    with blaming("the backward pass"):
        by_leaf = torch.autograd.grad(
            of, leaves, create_graph=create_graph, retain_graph=retain_graph or create_graph, allow_unused=True
        )
    return [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(by_leaf, leaves, strict=True)]


def product(first: Sequence[Tensor], leaves: Sequence[Tensor], along: Sequence[Tensor] | None = None) -> list[Tensor]:
    """Returns the Hessian times `along`, or times the gradients `first`, whose graph it needs and frees."""
    pairs = zip(first, first if along is None else along, strict=True)
    slope = torch.stack([(g * fixed.detach()).sum() for g, fixed in pairs]).sum()
    return gradients(slope, leaves)


def product_apart(
    forward: Callable[[Tensor], Tensor],
    x: Tensor,
    losses: Callable[[Tensor, slice], Tensor],
    along: Sequence[Tensor],
    leaves: Sequence[Tensor],
) -> list[Tensor]:
    """Returns the same for a network in which no layer mixes the samples, a few samples at a time.

    `losses` returns those of some samples [B], from their outputs and their range.
    """
    total = [torch.zeros_like(leaf) for leaf in leaves]

    def add(start: int, stop: int) -> None:
        some = slice(start, stop)
        share = losses(forward(x[some]), some).sum() / len(x)
        foreach.add_(total, product(gradients(share, leaves, create_graph=True), leaves, along))

    with _counting() as kept:
        add(0, 1)
    together = max(1, GRAPH_BYTES // max(1, sum(kept.values())))
    for start in range(1, len(x), together):
        add(start, start + together)
    return total


@contextmanager
def _counting() -> Iterator[dict[int, int]]:
    """Counts the bytes that graphs made in this context keep, by address."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = min(tensor.nbytes, tensor.untyped_storage().nbytes())  # the least, if it is expanded
        return tensor.detach()

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        yield kept
