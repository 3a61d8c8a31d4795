r"""KNAS: the similarity of the gradients of different samples.

    score = mean_ij  g_i . g_j = || mean_i g_i ||^2         g_i the loss gradient of sample i over everything trainable

Options:
    variant     paper: the mean of the Gram matrix; label: the same with the gradients of the logit of each sample's
                class, M_KNAS squared of HNAS's theory (eq. D.11); reference: the published code: samples one at a time,
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
from epochzero.engine.loss import check_labels, label_logits
from epochzero.errors import DegenerateError, UserError
from epochzero.proxies.nasi import squared_norm

TENSORS, COORDINATES, SAMPLES = 11, 50, 50
READS = {"paper": ("parameter_gradients",), "label": ("network", "labels"), "reference": ("network", "loss")}


def needs(variant: str) -> Sequence[Need]:
    if variant not in READS:
        raise UserError(f"knas takes variant=paper, variant=label or variant=reference, not {variant!r}.")
    return [need(Pass(), *READS[variant])]


@proxy(needs=needs, higher_is_better=True)
def knas(trace: Trace, *, variant: str = "paper") -> Tensor:
    if variant == "reference":
        return split_half(trace.network)
    if variant == "label":
        return of_labels(trace.network, trace.labels)
    return squared_norm(trace)


def of_labels(network: Handle, labels: Tensor) -> Tensor:
    """Returns || mean_i d a_i/d theta ||^2, a_i the logit of sample i's class."""
    leaves = {name: network.weights[name].detach().requires_grad_() for name in network.network.trainable}
    with torch.enable_grad():
        logits = network.network.forward(network.x, {**network.weights, **leaves}, network.norm)  # [B, K]
        check_labels(logits.shape, labels)
        chosen = label_logits(logits, labels).mean()
        if not chosen.requires_grad:
            raise DegenerateError("the logits do not depend on anything trainable")
        gradients = torch.autograd.grad(chosen, list(leaves.values()), allow_unused=True)
    return torch.stack([g.double().square().sum() for g in gradients if g is not None]).sum()


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
