r"""The image of a circle in a network's input space, and the variation of Dextr over circles.

    g(t) = R (o1 cos t + o2 sin t)         a random circle in R^N, R = sqrt(N q)
    h(t) = f(g(t)), in R^K                 the outputs, projected on the three directions in which they vary most

All points run as one batch, as in `epochzero.proxies.dextr`; kappa(t) is the extrinsic curvature of h.

Asthana, Conrad, Ortmanns, Belagiannis. Dextr: zero-shot neural architecture search with singular value decomposition
and extrinsic curvature. TMLR 2025, Figures 1b and 2. openreview.net/forum?id=X0uPof5DVh
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from epochzero.data import Batch
from epochzero.engine import Handle, Need, Network, Pass
from epochzero.engine.inputs import like, pass_curve
from epochzero.engine.single.run import run_pass
from epochzero.engine.trace import refusals, trace
from epochzero.errors import UserError
from epochzero.proxies.dextr import (
    as_published,
    bending,
    curve,
    extrinsic_curvature,
    harmonic,
    independence,
    one_sample,
)

COMPONENTS = 3


@dataclass(frozen=True)
class OutputCurve:
    """The curve of the output as the input goes round the circle once."""

    points: Sequence[Sequence[float]]
    """[points][3], on the principal components"""
    explained: Sequence[float]
    """each component's share of the variance"""
    curvature: Sequence[float]
    """kappa at each point"""


def output_curve(
    network: Network, batch: Batch, *, points: int = 100, q: float = 1.0, seed: int = 0, draw: int = 0
) -> OutputCurve:
    """The curve of one circle in the input space of this data, drawn by seed and number."""
    if points < 4 or not 0 < q < math.inf:
        raise UserError(f"A curve takes at least 4 points and a positive q, not {points} and {q:g}.")
    run = Pass(inputs="circle", points=points, radius=q, draw=draw)
    with torch.no_grad():
        h, v, a = network.jet(pass_curve(run, batch, seed, like(network.weights, run)), network.weights, run.norm)
    kappa = extrinsic_curvature(v.flatten(1), a.flatten(1))
    projected, shares = principal_components(h.flatten(1).double())
    return OutputCurve(projected.tolist(), shares.tolist(), kappa.tolist())


def principal_components(h: Tensor) -> tuple[Tensor, Tensor]:
    """Points [n, K] on their three principal components [n, 3], zeros for missing ones, and their shares [3]."""
    centred = h - h.mean(0)
    u, s, _ = torch.linalg.svd(centred, full_matrices=False)
    projected = torch.zeros(len(h), COMPONENTS, dtype=h.dtype, device=h.device)
    shares = torch.zeros(COMPONENTS, dtype=h.dtype, device=h.device)
    kept = min(COMPONENTS, len(s))
    projected[:, :kept] = u[:, :kept] * s[:kept]
    shares[:kept] = s[:kept].square() / s.square().sum().clamp(min=torch.finfo(h.dtype).tiny)
    return projected, shares


def dextr_of_each(
    network: Network,
    batch: Batch,
    count: int,
    *,
    points: int = 4,
    q: float = 1.0,
    seed: int = 0,
    variant: str = "paper",
) -> list[float]:
    """Dextr's value for each of the first images of the batch, each with its own circle and the same weights.

    With variant=reference as in the authors' code, whose circle and outputs the seed and the image's number draw.
    """
    if not 1 <= count <= batch.size:
        raise UserError(f"The batch has {batch.size} samples, so that Dextr can be taken for 1 to {batch.size}.")
    if variant == "reference":
        images = batch.part(0)[0].to(like(network.weights, Pass()))
        handles = [Handle(network, network.weights, images[i : i + 1], None, seed + i, "train") for i in range(count)]
        return [float(as_published(handle)) for handle in handles]

    def read(need: Need) -> Tensor:
        ran = [run_pass(need.run, list(need.reads.items()), network, batch, seed)]
        for why in refusals(need, ran).values():
            raise why
        read_trace = trace(need, ran, 0)
        return bending([read_trace]) if need.run.inputs == "circle" else independence(read_trace)

    return [float(harmonic(read(one_sample(i)), read(curve(points, q, which=i)[0]))) for i in range(count)]
