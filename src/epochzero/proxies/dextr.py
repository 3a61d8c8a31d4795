r"""Dextr: feature maps that are linearly independent, and an output curve that bends.

    r_l       = sigma_min / sigma_max of layer l's output for one sample, a matrix [C, H*W]: 1 / condition number
    fmi       = log(1 + sum_l r_l)                    feature map independence: convergence and generalisation
    kappa     = (v.v)^(-3/2) sqrt((v.v)(a.a) - (v.a)^2)
    curvature = log(1 + kappa)                        expressivity
    dextr     = fmi * curvature / (fmi + curvature)   eq. 8, half the harmonic mean
    dextr_opt = dextr with C_l / n * r_l in fmi       eq. 22; r_l of n random channels of the C_l of the layer

v and a are the velocity and acceleration of all the logits as the input moves around a random circle of radius
sqrt(N q); kappa is averaged over points spaced evenly on it. The points run as one batch, so that batch norm sees
the whole curve. Layers are convs, norms, activations, pools, linear layers, skips and cut edges; an output that is
a vector for one sample has a single singular value and is left out.

Singular values come from the Gram matrix in double precision, which gives the same ranks as the SVD in half the
time. The paper leaves open which layers count, how many points, and q; its code differs from the paper.

Options:
    points      number of points on the circle
    q           its squared radius, divided by the number N of inputs of a sample
    alone       true: each point is a batch of one, as in the authors' code, so that batch norms see that point alone
    outputs     number of logits that are drawn, with replacement, for v and a; 0: all
    scale       constant that kappa is multiplied by; the number of points for their sum in place of their mean
    repeats     number of samples and circles over which the score is averaged
    variant     paper, or reference for the authors' code: it counts every layer and block (the authors nest
                their NAS-Bench-201 network deeper, 507 outputs against our 408 for six 3x3 convs), draws ten outputs
                with replacement, and takes one point of a circle of radius 1 on 64x64 inputs, as a batch of one
    channels    n, number of channels drawn from each layer

Beware (dextr, fmi): the condition number depends on the number of channels, so networks of different widths are ranked
in the wrong order: -.63, -.60 and -.67 for Dextr on NATS-Bench-SSS (Dextr's Table 6). Use `dextr_opt` or another score
there. A skip that a module writes as bare `x` calls nothing and is not counted as a layer.

Beware (dextr): the harmonic mean follows the smaller term, so a constant factor of kappa decides how much the curvature
counts, and the paper gives none. On NAS-Bench-201 dextr orders CIFAR-10 accuracies worse than `fmi` as eq. 8 is
printed (-.017), a little better with scale=24 (.004), and no differently with alone=true as in the authors' code. On
DARTS the curvature misleads (docs/results/nas-bench-201.md). The paper's figure for TransNAS jigsaw is that of the
first term alone: its code falls back to it.

Beware (curvature): by far the weaker of the two terms. At a single point with a batch of one, as in the authors' code,
the value varies strongly with the circle drawn.

Beware (dextr, curvature, dextr_opt): a network without a path from input to output has no curvature and no score.

Beware (dextr_opt): made for networks that differ in width; where all have the same, drawing channels adds noise (see
the correlations measured on NAS-Bench-201).

Asthana, Conrad, Ortmanns, Belagiannis. Dextr: zero-shot neural architecture search with singular value
decomposition and extrinsic curvature. TMLR 2025. openreview.net/forum?id=X0uPof5DVh
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from epochzero.engine import Handle, Layer, Need, Pass, Trace, each_layer, need, of_network, proxy, together
from epochzero.engine.spectrum import eigenvalues, extreme_eigenvalues
from epochzero.errors import DegenerateError, UserError
from epochzero.plan import generator


def grams(outputs: Tensor) -> Tensor | None:
    """Returns the same for many networks [B, M, ...]."""
    x = outputs[0]
    if x.dim() < 3:
        return None
    x = x.flatten(2).double()  # [M, C, H*W]
    if 1 in x.shape[1:]:
        return None
    return x @ x.mT if x.shape[1] <= x.shape[2] else x.mT @ x  # [M, n, n]


@together(grams)
def gram(output: Tensor) -> Tensor | None:
    """Returns the smaller of X X^T and X^T X for one sample's output X, or None for a vector."""
    matrices = grams(output.unsqueeze(1))
    return None if matrices is None else matrices[0]  # [n, n]


def evenness(gram: Tensor) -> Tensor:
    """Returns sigma_min / sigma_max from a Gram matrix; 0 for a layer of zeros."""
    low, high = extreme_eigenvalues(gram)
    return torch.where(high == 0, 0, low.clamp(min=0) / high).sqrt()


def independence(trace: Trace) -> Tensor:
    ratios = each_layer(evenness, [trace], "layers")  # [L]
    if not len(ratios):
        raise DegenerateError("no layer has an output with channels and positions")
    return ratios.sum().log1p()


def bending(traces: Sequence[Trace], scale: float = 1.0, outputs: int = 0, which: int = 0) -> Tensor:
    """Returns log(1 + kappa) over the points of all traces."""
    pairs = [of_network(pair, trace, "velocity", "acceleration") for trace in traces]
    v, a = (torch.cat(parts) if len(parts) > 1 else parts[0] for parts in zip(*pairs, strict=True))  # [points, K]
    if v.shape[1] == 1:
        raise DegenerateError("the network has one output, and a curve on a line does not bend")
    if outputs:
        drawn = generator(traces[0].seed, "drawn outputs", which)
        chosen = torch.randint(v.shape[1], (outputs,), generator=drawn).to(v.device)
        v, a = v[:, chosen], a[:, chosen]
    kappa = extrinsic_curvature(v, a).mean()
    return (kappa * scale if scale != 1 else kappa).log1p()


def pair(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    return one.double(), other.double()


def extrinsic_curvature(v: Tensor, a: Tensor) -> Tensor:
    """Returns the curvature at each point of a curve, from velocity and acceleration [points, K]."""
    v, a = v.double(), a.double()
    vv, aa, va = (v * v).sum(1), (a * a).sum(1), (v * a).sum(1)  # [points]
    if (vv == 0).any():
        raise DegenerateError("the output does not move with the input: no path connects them")
    return (vv * aa - va**2).clamp(min=0).sqrt() / vv**1.5  # [points]


def harmonic(one: Tensor, other: Tensor) -> Tensor:
    return one * other / (one + other)


def one_sample(which: int = 0) -> Need:
    return need(Pass(only=(which, which + 1)), layers=gram)


def curve(
    points: int, q: float, alone: bool = False, outputs: int = 0, scale: float = 1.0, which: int = 0
) -> list[Need]:
    if points < 1 or not 0 < q < math.inf:
        raise UserError("the circle needs at least one point (points) and a positive radius (q).")
    if outputs < 0 or not 0 < scale < math.inf:
        raise UserError("the curvature takes outputs of at least 0 (all) and a positive scale.")
    whole = Pass(inputs="circle", points=points, radius=q, draw=which)
    runs = [replace(whole, only=(i, i + 1)) for i in range(points)] if alone else [whole]
    return [need(run, "velocity", "acceleration", *(["seed"] if outputs else [])) for run in runs]


@proxy(needs=[one_sample()], higher_is_better=True, tf32=("nb101",))
def fmi(trace: Trace) -> Tensor:
    """The first term of Dextr: feature map independence."""
    return independence(trace)


@proxy(needs=curve, higher_is_better=True)
def curvature(
    *traces: Trace, points: int = 4, q: float = 1.0, alone: bool = False, outputs: int = 0, scale: float = 1.0
) -> Tensor:
    """The second term of Dextr: the curvature of the output for inputs on a circle."""
    return bending(traces, scale, outputs)


def needs(points: int, q: float, alone: bool, outputs: int, scale: float, repeats: int, variant: str) -> Sequence[Need]:
    if variant == "reference":
        return [need(Pass(only=(0, 1)), "network")]
    if variant != "paper" or repeats < 1:
        raise UserError("dextr takes variant=paper or variant=reference, and repeats of at least 1.")
    repeated = ([one_sample(i), *curve(points, q, alone, outputs, scale, i)] for i in range(repeats))
    return [asked for one in repeated for asked in one]


@proxy(needs=needs, higher_is_better=True)
def dextr(
    *traces: Trace,
    points: int = 4,
    q: float = 1.0,
    alone: bool = False,
    outputs: int = 0,
    scale: float = 1.0,
    repeats: int = 1,
    variant: str = "paper",
) -> Tensor:
    if variant == "reference":
        return as_published(traces[0].network)
    values = []
    for which in range(repeats):
        sample, *circle = traces[which * len(traces) // repeats : (which + 1) * len(traces) // repeats]
        values.append(harmonic(independence(sample), bending(circle, scale, outputs, which)))
    return torch.stack(values).mean()  # [repeats] -> []


def channel_grams(outputs: Tensor) -> Tensor | None:
    """Returns the same for many networks [B, M, ...]."""
    x = outputs[0]
    if x.dim() < 3 or 1 in (x := x.flatten(2).double()).shape[1:]:
        return None
    positions = x.new_full((len(x), 1, x.shape[1]), x.shape[2])
    return torch.cat([x @ x.mT, positions], 1)  # [M, C + 1, C]


@together(channel_grams)
def channel_gram(output: Tensor) -> Tensor | None:
    """Returns X X^T for one sample's output X [C, H*W], and a row with H*W; None for one channel or one position."""
    matrices = channel_grams(output.unsqueeze(1))
    return None if matrices is None else matrices[0]  # [C + 1, C]


@cache
def of_some_channels(function: Callable[[Tensor, Tensor], Tensor], channels: int, seed: int) -> Callable[..., Tensor]:
    """Returns C / n times the function of the Gram matrix of n of a layer's C channels and its number of positions.

    Layers of equal width draw the same channels, so that the order in which layers run does not matter.
    """

    def drawn(gram: Tensor) -> Tensor:
        width = gram.shape[1]
        chosen = torch.randperm(width, generator=generator(seed, "channels", width))[:channels].to(gram.device)
        return width / len(chosen) * function(gram[:width][chosen][:, chosen], gram[-1, 0])

    return drawn


def evenness_within(gram: Tensor, positions: Tensor) -> Tensor:
    """Returns the same without the zero eigenvalues beyond the number of positions, which are not singular values."""
    values = eigenvalues(gram)  # ascending
    first = (len(gram) - positions).clamp(min=0).long()
    low, high = values.gather(0, first[None])[0].clamp(min=0), values[-1]
    return torch.where(high == 0, 0, low / high).sqrt()


def needs_opt(points: int, q: float, scale: float, channels: int) -> Sequence[Need]:
    if channels < 2:
        raise UserError(f"dextr_opt compares channels and needs at least 2, not {channels}.")
    return [need(Pass(only=(0, 1)), "seed", layers=channel_gram), *curve(points, q, scale=scale)]


@proxy(needs=needs_opt, higher_is_better=True)
def dextr_opt(
    sample: Trace, circle: Trace, *, points: int = 4, q: float = 1.0, scale: float = 1.0, channels: int = 8
) -> Tensor:
    """Dextr on a fixed number of random channels of each layer (eq. 22)."""
    ratios = each_layer(of_some_channels(evenness_within, channels, sample.seed), [sample], "layers")  # [L]
    if not len(ratios):
        raise DegenerateError("no layer has an output with channels and positions")
    return harmonic(ratios.sum().log1p(), bending([circle], scale))


def as_published(network: Handle) -> Tensor:
    """Returns the score of the authors' code, apart from its magic numbers for failures."""
    ratios = []

    def conditioned(layer: Layer) -> None:
        x = layer.output.detach()[0]
        x = x.reshape(x.shape[0], -1)  # [C, H*W], logits [K, 1]
        values = torch.linalg.svdvals(x)
        ratio = values[-1] / values[0]
        ratios.append(ratio if torch.isfinite(ratio) else torch.zeros_like(ratio))

    with torch.no_grad():
        network(network.x, conditioned, blocks=True)
    independent = torch.stack(ratios).sum().log1p()

    drawn = generator(network.seed, "dextr reference")
    n = network.x.shape[1] * 64 * 64
    basis = torch.linalg.svd(torch.randn(n, 2, generator=drawn), full_matrices=False).U.to(network.x)  # [N, 2]
    theta = torch.zeros((), dtype=network.x.dtype, device=network.x.device, requires_grad=True)
    with torch.enable_grad():
        point = (basis @ torch.stack([theta.cos(), theta.sin()])).view(1, -1, 64, 64)
        logits = network(point)[0]  # [K]
        outputs = torch.randint(len(logits), (10,), generator=drawn).tolist()
        v, a = [], []
        for k in outputs:
            if not logits.requires_grad:
                raise DegenerateError("the output does not move with the input: no path connects them")
            velocity = torch.autograd.grad(logits[k], theta, create_graph=True)[0]
            v.append(velocity.detach())
            a.append(torch.autograd.grad(velocity, theta, retain_graph=True)[0])
    kappa = extrinsic_curvature(torch.stack(v)[None], torch.stack(a)[None])[0]
    return harmonic(independent.double(), kappa.log1p())
