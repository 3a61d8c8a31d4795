r"""KNAS: the similarity of the gradients of different samples.

    score = mean_ij  g_i . g_j = || mean_i g_i ||^2         g_i the loss gradient of sample i over everything trainable

Options:
    variant     paper: the mean of the Gram matrix; reference: the published code: samples one at a time,
                the first eleven parameter tensors with at least 50 numbers, their first 50 coordinates, the covariance
                of each coordinate between the first and the second half of the samples, summed and divided by 2500

Beware: the mean of all inner products is the squared norm of the mean gradient, so the paper's form equals
`nasi_trace`. It takes one backward pass for the batch; the paper has one for each sample.

Xu, Zhao, Lin, Gao, Sun, Yang. KNAS: green neural architecture search. ICML 2021. arXiv:2111.13293
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from epochzero.engine import Handle, Need, Pass, Trace, check_samples, need, proxy
from epochzero.errors import DegenerateError, UserError
from epochzero.proxies.nasi import squared_norm

TENSORS, COORDINATES, SAMPLES = 11, 50, 50


def needs(variant: str) -> Sequence[Need]:
    if variant not in ("paper", "reference"):
        raise UserError(f"knas takes variant=paper or variant=reference, not {variant!r}.")
    return [need(Pass(), "parameter_gradients") if variant == "paper" else need(Pass(), "network", "loss")]


@proxy(needs=needs, higher_is_better=True)
def knas(trace: Trace, *, variant: str = "paper") -> Tensor:
    if variant == "reference":
        return split_half(trace.network)
    return squared_norm(trace)


def split_half(network: Handle) -> Tensor:
    """Returns the score of the published code, on at most 50 samples."""
    labels = network.y
    assert labels is not None
    samples = min(len(labels), SAMPLES) // 2 * 2
    chosen = [name for name in network.network.trainable if network.weights[name].numel() >= COORDINATES][:TENSORS]
    check_samples(len(labels), 4)
    if not chosen:
        raise DegenerateError("needs a parameter tensor with 50 numbers")
    weights = dict(network.weights) | {name: network.weights[name].detach().requires_grad_() for name in chosen}
    rows = []
    for i in range(samples):
        with torch.enable_grad():
            logits = network.network.forward(network.x[i : i + 1], weights, network.norm)
            loss = network.loss.mean(logits, labels[i : i + 1])
            leaves = [weights[name] for name in chosen]
            if not loss.requires_grad:
                raise DegenerateError("the loss does not depend on these parameters")
            gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        whole = (torch.zeros_like(w) if g is None else g for g, w in zip(gradients, leaves, strict=True))
        rows.append(torch.stack([g.flatten()[:COORDINATES] for g in whole]))  # [tensors, 50]
    g = torch.stack(rows).double()  # [samples, tensors, 50]
    first, second = g[: samples // 2], g[samples // 2 :]
    return ((first - first.mean(0)) * (second - second.mean(0))).sum() / (samples * COORDINATES)
