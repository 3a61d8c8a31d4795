"""A lower bound of the scoring time, estimated from two measured ceilings of the machine, not from hardware counters.

For a network with M multiply-accumulates and A stored activations per sample and W weights, of which proxies need F
samples forward and G samples backward, in R forward and S backward passes (one of a whole batch is B samples):

    FLOPs = 2 M (F + 2 G)                   backward: once for the inputs of each layer, once for its weights
    bytes = 4 A (2 F + 4 G) + 4 W (1 + R + 2 S)
    floor = max(bytes / bandwidth, FLOPs / arithmetic)

The bytes: each activation is written and read once forward and, with its gradient, twice backward; each weight is
written when it is drawn, read in each pass, and its gradient written. Stored are the outputs of convolutions, linear
layers and poolings, as if norms, activations and sums cost no traffic; `bytes_op_by_op` stores the output of every
operation. Second derivatives count as one more backward pass, a curve on a circle as three forward passes. Passes that
a proxy runs by itself are counted as far as it declares them.

Williams, Waterman, Patterson. Roofline: an insightful visual performance model. Commun. ACM 52, 2009.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean

import torch

from epochzero.data import Batch
from epochzero.engine import Proxy
from epochzero.engine.passes import merged
from epochzero.engine.population.cost import quickest
from epochzero.engine.reads import BACKWARD, LOSS_GRADIENTS, NEED_FORWARD
from epochzero.plan import Plan

FLOAT = 4
"""bytes"""
KEPT = ("conv", "linear", "pool")


@dataclass(frozen=True)
class Ceilings:
    """The measured ceilings of a device."""

    bytes_per_second: float
    """read and written, by copying a large tensor"""
    flops: float
    """per second, in the product of two large float32 matrices"""
    flops_tf32: float | None
    """the same with factors rounded to TF32; None on a CPU"""


@dataclass(frozen=True)
class Floor:
    """The least average cost of scoring a network, as counted above."""

    flops: float
    bytes: float
    bytes_op_by_op: float
    ms: float
    ms_tf32: float | None
    bound: str
    """memory or arithmetic: the limiting ceiling in float32"""


@cache
def ceilings(device: str) -> Ceilings:
    """Measures the device, once."""
    place = torch.device(device)
    cuda = place.type == "cuda"
    numbers, side = (2**28, 8192) if cuda else (2**25, 1024)
    source = torch.ones(numbers, device=device)
    target = torch.empty_like(source)
    copying = quickest(lambda: target.copy_(source), place)
    left = torch.randn(side, side, device=device)
    before = torch.backends.cuda.matmul.allow_tf32
    rates = []
    try:
        for tf32 in (False, True) if cuda else (False,):
            torch.backends.cuda.matmul.allow_tf32 = tf32
            rates.append(2 * side**3 / quickest(lambda: left @ left, place))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    if cuda:
        del source, target, left
        torch.cuda.empty_cache()
    return Ceilings(2 * numbers * FLOAT / copying, rates[0], rates[1] if cuda else None)


@dataclass(frozen=True)
class Passes:
    """The passes that proxies need together, each counted once."""

    forward: int = 0
    backward: int = 0
    samples_forward: int = 0
    samples_backward: int = 0


def passes(proxies: Sequence[Proxy], batch: Batch) -> Passes:
    forward = backward = samples_forward = samples_backward = 0
    for run, items in merged(need for proxy in proxies for need in proxy.needs).items():
        reads = {name for name, _ in items}
        samples = {"ones": 1, "circle": run.points}.get(run.inputs, batch.size)
        samples = samples if run.only is None else run.only[1] - run.only[0]
        times = {"": 1, "L": 1, "B": samples, "BK": samples * batch.num_classes}
        ahead = 3 if run.inputs == "circle" else int(bool(reads & NEED_FORWARD))
        back = bool(reads & LOSS_GRADIENTS) + sum(times[unit] for read, unit in BACKWARD.items() if read in reads)
        for proxy in proxies:
            ahead += proxy.runs[0] * any(need.run == run and "network" in need.reads for need in proxy.needs)
        forward, backward = forward + ahead, backward + back
        samples_forward, samples_backward = samples_forward + ahead * samples, samples_backward + back * samples
    return Passes(forward, backward, samples_forward, samples_backward)


def floor(plans: Sequence[Plan], proxies: Sequence[Proxy], batch: Batch, limits: Ceilings) -> Floor:
    """The average floor of these networks."""
    counted = passes(proxies, batch)
    ahead, back = counted.samples_forward, counted.samples_backward
    flops = fmean(2 * plan.flops * (ahead + 2 * back) for plan in plans)
    uses = 0 if all(proxy.free for proxy in proxies) else 1 + counted.forward + 2 * counted.backward
    weights = fmean(FLOAT * plan.params for plan in plans) * uses
    traffic = FLOAT * (2 * ahead + 4 * back)
    fused = fmean(map(_kept, plans)) * traffic + weights
    apart = fmean(plan.activations for plan in plans) * traffic + weights
    memory, arithmetic = fused / limits.bytes_per_second, flops / limits.flops
    tf32 = None if limits.flops_tf32 is None else 1e3 * max(memory, flops / limits.flops_tf32)
    bound = "memory" if memory > arithmetic else "arithmetic"
    return Floor(flops, fused, apart, 1e3 * max(memory, arithmetic), tf32, bound)


def _kept(plan: Plan) -> int:
    return sum(math.prod(node.shape) for node in plan.nodes if node.op.kind in KEPT)
