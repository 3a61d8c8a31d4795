"""Gradients of one number at a time, through the whole batch, over everything that is trainable."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from epochzero.data import Batch
from tests.proxies.nets import labels


def gradient(number: Tensor, module: nn.Module) -> Tensor:
    """Of all parameters in a row, zeros where the number does not depend on one. Keeps the graph."""
    leaves = list(module.parameters())
    found = torch.autograd.grad(number, leaves, retain_graph=True, allow_unused=True)
    pairs = zip(found, leaves, strict=True)
    return torch.cat([torch.zeros_like(w).flatten() if g is None else g.flatten() for g, w in pairs])


def sample_losses(logits: Tensor, y: Tensor) -> list[Tensor]:
    """The cross-entropy of each sample, written out."""
    return [row.exp().sum().log() - row[label] for row, label in zip(logits, y.tolist(), strict=True)]


def numbers(of: str, logits: Tensor, y: Tensor) -> list[Tensor]:
    """Returns the numbers that a tangent kernel differentiates, one per row."""
    match of:
        case "label":
            return [row[label] for row, label in zip(logits, y.tolist(), strict=True)]
        case "sum":
            return [sum(row.unbind(), torch.zeros(())) for row in logits]
        case "outputs":
            return [logit for row in logits for logit in row]
        case _:
            return sample_losses(logits, y)


def rows_together(module: nn.Module, batch: Batch, of: str) -> list[Tensor]:
    """The gradient of each row's number, with all samples in the batch."""
    logits = module(batch.part(0)[0].double())
    return [gradient(number, module) for number in numbers(of, logits, labels(batch))]


def rows_alone(module: nn.Module, batch: Batch, of: str) -> list[Tensor]:
    """The same with each sample in a batch of its own."""
    found = []
    for x, y in zip(batch.part(0)[0].double(), labels(batch), strict=True):
        found += [gradient(number, module) for number in numbers(of, module(x[None]), y[None])]
    return found


def gram(rows: list[Tensor]) -> Tensor:
    """Inner products of all pairs."""
    return torch.stack([torch.stack([(one * other).sum() for other in rows]) for one in rows])
