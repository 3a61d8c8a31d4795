r"""Baselines for choosing an ensemble: at random, greedily from a pool, and without any training.

URS      n architectures, uniformly: `space.sample`, or `SinglePath.uniform`
NES-RS   a random pool is trained, then members are added one at a time, each the one that lowers the loss of the
         averaged prediction on held-out images most, without replacement (`forward_greedy`)
ours     nothing is trained: members are added one at a time, each the one with the largest

             rank(score of a proxy) + weight * rank(smallest distance to the members so far),      ranks in [0, 1]

         where the distance of two untrained networks is 1 - CKA of their features of the same images (`training_free`)

CKA(X, Y) = |Y' X|^2 / (|X' X| |Y' Y|) for centred features X [n, f], Y [n, g] and Frobenius norms: 1 for features that
are the same up to rotation and scale.

Zaidi, Zela, Elsken, Holmes, Hutter, Teh. Neural ensemble search for uncertainty estimation and dataset shift.
NeurIPS 2021. arXiv:2006.08573
Kornblith, Norouzi, Lee, Hinton. Similarity of neural network representations revisited. ICML 2019. arXiv:1905.00414
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from epochzero.ensemble.metrics import nll
from epochzero.errors import UserError
from epochzero.plan import Plan, execute
from epochzero.plan.init import draw
from epochzero.types import Origin


def forward_greedy(predictions: Tensor, labels: Tensor, size: int) -> list[int]:
    """The members' indices, in the order in which they are added; predictions [pool, n, classes], labels [n]."""
    _check(len(predictions), size)
    chosen: list[int] = []
    while len(chosen) < size:
        left = [i for i in range(len(predictions)) if i not in chosen]
        chosen.append(min(left, key=lambda i: nll(predictions[[*chosen, i]], labels)))
    return chosen


def training_free(scores: Sequence[float], distances: Tensor, size: int, weight: float = 1.0) -> list[int]:
    """The members' indices, from scores of the pool, higher is better, and distances [pool, pool].

    The first is the one with the best score. A score that is NaN counts as the worst.
    """
    _check(len(scores), size)
    if distances.shape != (len(scores), len(scores)):
        raise UserError(
            f"{len(scores)} scores need distances {len(scores)}x{len(scores)}, not {list(distances.shape)}."
        )
    good = _ranks(torch.tensor(scores, dtype=torch.float64).nan_to_num(-torch.inf))  # [pool]
    chosen = [int(good.argmax())]
    while len(chosen) < size:
        far = _ranks(distances[:, chosen].double().amin(1))  # [pool]
        worth = good + weight * far
        worth[chosen] = -torch.inf
        chosen.append(int(worth.argmax()))
    return chosen


def distances_at_start(plans: Sequence[Plan], x: Tensor, seed: int = 0) -> Tensor:
    """1 - CKA [pool, pool] of the features of images x in untrained networks, before their classifiers."""
    return 1 - cka([features_at_start(plan, x, seed) for plan in plans])


def features_at_start(plan: Plan, x: Tensor, seed: int = 0) -> Tensor:
    """The features [n, f] that the classifier of an untrained network reads."""
    read = plan.trunk.nodes[-1].inputs[0]
    if plan.trunk.nodes[-1].op.kind != "linear":
        raise UserError("Features are read before a linear classifier, and this network does not end with one.")
    body = Plan.of(plan.trunk.nodes[: read + 1], plan.flops, plan.weights)
    with torch.no_grad():
        return execute(body, draw(plan.weights, Origin(seed=seed), x.device), (x,)).flatten(1)


def cka(features: Sequence[Tensor]) -> Tensor:
    """Linear CKA of all pairs, [pool, pool]; 0 if the features are the same for all images."""
    kernels = []
    for own in features:
        centred = own.double() - own.double().mean(0)
        kernel = (centred @ centred.mT).flatten()  # [n * n]
        norm = kernel.norm()
        kernels.append(kernel / norm if norm > 0 else kernel)
    unit = torch.stack(kernels)  # [pool, n * n]
    return unit @ unit.mT


def _ranks(values: Tensor) -> Tensor:
    """Ranks from 0 for the smallest to 1 for the largest, with ties averaged."""
    below = (values[None, :] < values[:, None]).sum(1)
    above = (values[None, :] > values[:, None]).sum(1)
    return (below - above + len(values) - 1) / max(1, 2 * (len(values) - 1))


def _check(pool: int, size: int) -> None:
    if not 1 <= size <= pool:
        raise UserError(f"An ensemble from a pool of {pool} has 1 to {pool} members, not {size}.")
