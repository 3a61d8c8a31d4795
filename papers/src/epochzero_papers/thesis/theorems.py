r"""Theorems of the thesis on wide and deep cells, for linear cells in which every quantity can be measured.

The widest cell has inner nodes y_i = W_i x, the narrowest y_i = W_i ... W_1 x, i = 1, ..., n, and the objective is a
function f of all of them. With lambda_j = ||W_j||, the largest singular value (the thesis says eigenvalue; its proof
takes the norm), and block i, the weights W_i with the others held fixed:

    theorem 4.3    L^_i <= L_i prod_{j<i} lambda_j                                     smoothness of block i
    theorem 4.4    s^_i^2 <= n sum_{k>=i} (s_k / lambda_i prod_{j<=k} lambda_j)^2      variance of its gradient

hats being of the narrowest cell. Both proofs put df^/dy^_k = df/dy_k. That holds for objectives that are linear in the
nodes, where all L_i are 0. It does not for others: with f = 1/2 ||y - t||^2 the narrowest cell has

    L^_i = ||sum_{k>=i} A_k^T A_k|| ||W_{i-1} ... W_1 x||^2,    A_k = W_k ... W_{i+1}

which grows with the square of the product that theorem 4.3 allows. Of 100 random cells (4 nodes of 5 numbers, W_i of
N(0, s^2/5), 16 samples) blocks 1, 2, 3 and 4 break theorem 4.3 in 100, 0, 0 and 0 at s = 1/4, in 100, 100, 90 and 6 at
s = 1 and in 100, 100, 100 and 90 at s = 2; they break theorem 4.4, whose bound is looser, in none at s = 1/4, in 1, 0,
0 and 0 at s = 1 and in 76, 71, 57 and 30 at s = 2.

    theorem 7.4    Theta = L n I for 1^T sum_i W_i x;    E Theta = L n^L I for 1^T W_L ... W_1 x

with W_i ~ N(0, 1) of n x n and inputs that are orthonormal: a wide network has the condition number 1, a deep one has
it in expectation of the kernel alone.

Shu. Understanding and improving neural architecture search (thesis, sections 4.3.3, 7.3.5 and appendices A.2, D.1.5).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from epochzero.plan import generator

Weights = Sequence[Tensor]
"""n matrices [d, d]"""
Nodes = Callable[[Weights, Tensor], Tensor]
"""weights and inputs [B, d] to the inner nodes [B, n, d]"""
Objective = Callable[[Tensor], Tensor]
"""inner nodes [B, n, d] to the loss of each sample [B]"""


def widest(weights: Weights, x: Tensor) -> Tensor:
    """y_i = W_i x"""
    return torch.stack([x @ weight.mT for weight in weights], 1)


def narrowest(weights: Weights, x: Tensor) -> Tensor:
    """y_i = W_i y_{i-1}, y_0 = x"""
    nodes = []
    for weight in weights:
        x = x @ weight.mT  # [B, d]
        nodes.append(x)
    return torch.stack(nodes, 1)


def linear(coefficients: Tensor) -> Objective:
    """The objective f = c . y, with coefficients [B, n, d] of each sample's own."""
    return lambda nodes: (coefficients * nodes).sum((1, 2))


def quadratic(targets: Tensor) -> Objective:
    """The objective f = 1/2 ||y - t||^2."""
    return lambda nodes: (nodes - targets).square().sum((1, 2)) / 2


def norms(weights: Weights) -> list[float]:
    """lambda_j, the largest singular values."""
    return [float(torch.linalg.matrix_norm(weight, 2)) for weight in weights]


def smoothness(nodes: Nodes, objective: Objective, weights: Weights, x: Tensor, block: int) -> float:
    """The largest curvature of the mean loss in one block: its Lipschitz constant where the loss is quadratic in it."""

    def loss(own: Tensor) -> Tensor:
        given = [*weights[:block], own, *weights[block + 1 :]]
        return objective(nodes(given, x)).mean()

    size = weights[block].numel()
    hessian = torch.autograd.functional.hessian(loss, weights[block])  # type: ignore[no-untyped-call]
    return float(torch.linalg.matrix_norm(hessian.reshape(size, size), 2))


def bound_4_3(weights: Weights, of_widest: Sequence[float], block: int) -> float:
    """Returns the bound of theorem 4.3 for the narrowest cell, from Lipschitz constants of the widest one."""
    return math.prod(norms(weights)[:block]) * of_widest[block]


def gradient_variance(nodes: Nodes, objective: Objective, weights: Weights, x: Tensor, block: int) -> float:
    """E ||g - E g||^2 over the samples, in the spectral norm, for the gradients of one block."""
    own = weights[block].detach().requires_grad_()
    losses = objective(nodes([*weights[:block], own, *weights[block + 1 :]], x))
    gradients = torch.stack([torch.autograd.grad(loss, own, retain_graph=True)[0] for loss in losses])  # [B, d, d]
    spread = torch.linalg.matrix_norm(gradients - gradients.mean(0), 2)  # [B]
    return float(spread.square().mean())


def bound_4_4(weights: Weights, of_widest: Sequence[float], block: int) -> float:
    """Returns the bound of theorem 4.4 for the narrowest cell, from the variances of the widest one's blocks."""
    sizes = norms(weights)
    scales = [math.prod(sizes[: k + 1]) / sizes[block] for k in range(block, len(weights))]
    return len(weights) * sum(variance * scale**2 for variance, scale in zip(of_widest[block:], scales, strict=True))


class Case(NamedTuple):
    """A random linear cell: weights, inputs, and coefficients or targets of the objective."""

    weights: list[Tensor]
    x: Tensor
    others: Tensor


def random_case(seed: int, nodes: int = 4, size: int = 5, samples: int = 16, scale: float = 1.0) -> Case:
    """Weights N(0, scale^2 / size), the rest N(0, 1), in double precision."""
    drawn = generator(seed, "linear cell")

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=drawn, dtype=torch.float64)

    weights = [normal(size, size) * scale / math.sqrt(size) for _ in range(nodes)]
    return Case(weights, normal(samples, size), normal(samples, nodes, size))


class Verdict(NamedTuple):
    """The measured value of a block of the narrowest cell, and the bound of the theorem."""

    found: float
    allowed: float

    @property
    def holds(self) -> bool:
        return self.found <= self.allowed * (1 + 1e-9) + 1e-12


def against_theorem_4_3(case: Case, objective: Callable[[Tensor], Objective]) -> list[Verdict]:
    """Of each block."""
    weights, x, others = case
    wide = [smoothness(widest, objective(others), weights, x, i) for i in range(len(weights))]
    return [
        Verdict(smoothness(narrowest, objective(others), weights, x, i), bound_4_3(weights, wide, i))
        for i in range(len(weights))
    ]


def against_theorem_4_4(case: Case, objective: Callable[[Tensor], Objective]) -> list[Verdict]:
    """Of each block."""
    weights, x, others = case
    wide = [gradient_variance(widest, objective(others), weights, x, i) for i in range(len(weights))]
    return [
        Verdict(gradient_variance(narrowest, objective(others), weights, x, i), bound_4_4(weights, wide, i))
        for i in range(len(weights))
    ]


def broken(
    against: Callable[[Case, Callable[[Tensor], Objective]], list[Verdict]],
    objective: Callable[[Tensor], Objective],
    seeds: Sequence[int],
    nodes: int,
    size: int,
    scale: float,
) -> list[int]:
    """In how many random cells each block breaks a theorem's bound."""
    verdicts = [against(random_case(seed, nodes, size, scale=scale), objective) for seed in seeds]
    return [sum(not of_cell[block].holds for of_cell in verdicts) for block in range(nodes)]


def wide_network(weights: Tensor, x: Tensor) -> Tensor:
    """1^T sum_i W_i x for weights [L, n, n] and inputs [m, n]: [m]"""
    return (x @ weights.sum(0).mT).sum(1)


def deep_network(weights: Tensor, x: Tensor) -> Tensor:
    """1^T W_L ... W_1 x"""
    for weight in weights:
        x = x @ weight.mT
    return x.sum(1)


def tangent_kernel(network: Callable[[Tensor, Tensor], Tensor], weights: Tensor, x: Tensor) -> Tensor:
    """Theta [m, m], from the gradient of each output."""
    jacobian = torch.func.jacrev(network)(weights, x).flatten(1)  # [m, L*n*n]
    theta: Tensor = jacobian @ jacobian.mT
    return theta


def orthonormal(samples: int, size: int, seed: int) -> Tensor:
    """[m, n]"""
    drawn = torch.randn(size, samples, generator=generator(seed, "inputs"), dtype=torch.float64)
    rows: Tensor = torch.linalg.qr(drawn).Q.mT.contiguous()
    return rows


def conditions(seeds: Sequence[int], layers: int, size: int, samples: int = 2) -> tuple[list[float], list[float]]:
    """The kappa of wide and of deep linear networks with random weights, on orthonormal inputs."""
    kappas_of: tuple[list[float], list[float]] = ([], [])
    for seed in seeds:
        weights = torch.randn(layers, size, size, generator=generator(seed, "weights"), dtype=torch.float64)
        for network, kappas in zip((wide_network, deep_network), kappas_of, strict=True):
            eigenvalues = torch.linalg.eigvalsh(tangent_kernel(network, weights, orthonormal(samples, size, seed)))
            kappas.append(float(eigenvalues[-1] / eigenvalues[0]))
    return kappas_of
