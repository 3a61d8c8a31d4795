r"""SWAP: the number of different on-off patterns of the network's neurons over the samples.

    A in {0,1}^(neurons x B)      one row for each ReLU on a feature map or token: 1 for samples where its input > 0
    swap     = number of distinct rows, averaged over draws of N(0, 1) weights
    swap_reg = swap * exp(-(P - mu)^2 / sigma)           P the number of parameters in thousands

Options:
    repeats     number of draws of weights that are averaged
    samples     B, number of samples, at most 62
    mu          preferred size, in thousands of parameters
    sigma       width around it, in squared thousands. The published script's 40 and 40 are for its thin networks of
                3 channels; the defaults here are wide, around NAS-Bench-201's largest network

Beware: at most 2^B patterns exist, so few samples make large networks tie, and large networks have more neurons to show
patterns with. ReLU6, leaky ReLU, GELU, SiLU, hard swish and their like count as ReLUs. It needs them on feature maps or
tokens: plain perceptrons have no score.

Beware (swap_reg): mu and sigma state a preferred size, which can be tuned until the score fits a benchmark. The
published figures are for the authors' mu and sigma, which are not our defaults.

Peng, Song, Fayek, Ciesielski, Chang. SWAP-NAS: sample-wise activation patterns for ultra-fast NAS. ICLR 2024.
arXiv:2403.04161; for transformers, where each channel of each token is a neuron: Zero-shot neural network evaluation
with sample-wise activation patterns. TPAMI 2026. arXiv:2605.07378
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from epochzero.engine import Need, Pass, Summed, Trace, need, of_network, proxy, together
from epochzero.engine.population.reductions import Maps, mark
from epochzero.errors import DegenerateError, UserError

FEW = 16
"""the largest number of samples for which all possible patterns are listed; with more, those that occur"""


def marked(total: Tensor | None, networks: int, owners: Tensor, before: Maps) -> Tensor | None:
    """Returns the same for many networks: 1 for each pattern that some layer shows."""
    if isinstance(before, Tensor) and before.dim() < 4:
        return total
    samples = len(before) if isinstance(before, Tensor) else before.place.arena.shape[1]
    if total is None:
        total = torch.zeros((networks, 2**samples), dtype=torch.uint8, device=owners.device)
    mark(total, owners, before)
    return total


@together(onto=marked, spread=True)
def patterns(before: Tensor) -> Tensor | None:
    """Returns the patterns of one layer: 1 or 0 for each possible one, or a list; None for a vector."""
    if before.dim() < 3:
        return None
    on = (before > 0).flatten(1)  # [B, A]
    place = 2 ** torch.arange(len(on), device=on.device)[:, None]  # [B, 1]
    if len(on) > FEW:
        return torch.unique((on * place).sum(0))  # type: ignore[no-any-return]
    shown = torch.where(on, place.float(), 0.0).sum(0).long()  # [A]: floats hold 16 bits exactly, and are faster
    ones = torch.ones(shown.shape, device=on.device)
    return torch.zeros(2 ** len(on), device=on.device).scatter(0, shown, ones)


def count(shown: Tensor) -> Tensor:
    return (shown > 0).sum().float()


def distinct(trace: Trace, samples: int) -> Tensor:
    if samples <= FEW:
        patterns_seen = of_network(count, trace, "relus")
    else:
        lists = [layer for layer in trace.relus if layer is not None]
        patterns_seen = torch.tensor(float(len(torch.unique(torch.cat(lists))))) if lists else None
    if patterns_seen is None:
        raise DegenerateError("the network has no ReLU on feature maps or tokens, nor GELU, SiLU or the like")
    return patterns_seen  # type: ignore[no-any-return]


def read_patterns(samples: int) -> Callable[..., Tensor | None]:
    """Returns the function that reads the patterns of as many samples of each layer."""
    return Summed(patterns) if samples <= FEW else patterns


def needs(repeats: int, samples: int) -> Sequence[Need]:
    if repeats < 1 or not 1 <= samples <= 62:
        raise UserError("swap takes repeats of at least 1, and 1 to 62 samples.")
    read = read_patterns(samples)
    return [need(Pass(only=(0, samples), init="normal", draw=i), "params", relus=read) for i in range(repeats)]


def needs_reg(repeats: int, samples: int, mu: float, sigma: float) -> Sequence[Need]:
    if not math.isfinite(mu) or not 0 < sigma < math.inf:
        raise UserError("swap_reg takes a finite size mu, and a positive width sigma.")
    return needs(repeats, samples)


# recipe 2: rectifiers other than ReLU count too, and those on tokens
@proxy(needs=needs, higher_is_better=True, recipe=2)
def swap(*traces: Trace, repeats: int = 32, samples: int = 16) -> Tensor:
    return torch.stack([distinct(trace, samples) for trace in traces]).mean()


# recipe 2: as swap
@proxy(needs=needs_reg, higher_is_better=True, recipe=2)
def swap_reg(*traces: Trace, repeats: int = 32, samples: int = 16, mu: float = 1500.0, sigma: float = 1.0e6) -> Tensor:
    """SWAP, reduced with the distance of the network from the preferred size."""
    size = torch.tensor(traces[0].params / 1e3, dtype=torch.float64)
    return torch.stack([distinct(trace, samples) for trace in traces]).mean() * torch.exp(-((size - mu) ** 2) / sigma)
