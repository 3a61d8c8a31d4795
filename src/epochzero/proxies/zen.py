r"""Zen: how far the features move when the input is nudged, with what batch norm has scaled away put back.

    x ~ N(0, 1), x' = x + 0.01 e, e ~ N(0, 1);   f the last feature map, before global pooling
    score = log mean_n sum |f(x_n) - f(x'_n)|  +  sum_norms log sqrt(mean_c s_c)
    s_c   = 0.81 + 0.09 var_c(x) + 0.1 var_c(x')          the running variance after the two passes

Conv and linear weights are drawn from N(0, 1), biases are 0.

Options:
    repeats     averages the score over that many draws of weights and inputs

Beware: made for chains of convolutions with batch norms. The published search takes residual links out of the networks
that it scores; here the network is scored as it is. Weak on NAS-Bench-201 (.35, SiGeo's Table 2), strong where widths
vary (.69 to .87 on NATS-Bench-SSS, Dextr's Table 6). With these weights it grows
with the number of norms.

Lin, Wang, Sun, Chen, Sun, Qian, Li, Jin. Zen-NAS: a zero-shot NAS for high-performance image recognition. ICCV 2021.
arXiv:2102.01063
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from epochzero.engine import Handle, Layer, Need, Pass, Trace, need, proxy
from epochzero.errors import DegenerateError, UserError
from epochzero.plan import generator

NUDGE = 0.01
MOMENTUM = 0.1


def needs(repeats: int) -> Sequence[Need]:
    if repeats < 1:
        raise UserError(f"zen takes repeats of at least 1, not {repeats}.")
    return [need(Pass(inputs="noise", init="normal", draw=i), "network") for i in range(repeats)]


@proxy(needs=needs, higher_is_better=True, runs=(2, ""), valid="conv, batch norm")
def zen(*traces: Trace, repeats: int = 1) -> Tensor:
    return torch.stack([zen_score(trace.network, draw) for draw, trace in enumerate(traces)]).mean()


def zen_score(network: Handle, draw: int) -> Tensor:
    """The score for one draw of weights and inputs."""
    nudge = torch.randn(network.x.shape, generator=generator(network.seed, "zen", draw)).to(network.x)
    before, variances = features(network, network.x)
    after, nudged = features(network, network.x + NUDGE * nudge)
    moved = (before - after).abs().flatten(1).double().sum(1).mean()  # []
    if moved == 0:
        raise DegenerateError("the features do not move with the input: no path connects them")
    keep = 1 - MOMENTUM
    scales = [
        (keep**2 + keep * MOMENTUM * one + MOMENTUM * other).double().mean().sqrt().log()
        for one, other in zip(variances, nudged, strict=True)
    ]
    return moved.log() + (torch.stack(scales).sum() if scales else 0)


def features(network: Handle, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The last feature map, and the variance [C] that each batch norm sees."""
    last: list[Tensor] = []
    variances: list[Tensor] = []

    def see(layer: Layer) -> None:
        if layer.output.dim() > 2 and layer.output[0, 0].numel() > 1:
            last[:] = [layer.output]
        if layer.op in ("batchnorm", "batch_norm"):
            seen = layer.inputs[0]
            variances.append(seen.var([0, *range(2, seen.dim())]))

    with torch.no_grad():
        network(x, see)
    if not last:
        raise DegenerateError("no layer has an output with channels and positions")
    return last[0], variances
