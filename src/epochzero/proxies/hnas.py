r"""HNAS: one objective for every gradient metric M, from a bound on the generalisation error; lower is better.

    form=thesis          kappa/M + mu (M^2 - nu)^(2t)                   eq. 7.7
    form=code            kappa/(M + 1e-6) + mu |M^2 - nu^2|             the published code
    form=realizable      1/M                                            corollary 7.1, up to constants
    form=non_realizable  m/2 (1 - rate M^2/m)^(2t) + kappa/M            corollary 7.2, rate = eta/c, m samples

kappa is the condition number of the tangent kernel (`ntk_cond`). M is by default one of the sums over layers that the
experiments ran (ZCN's forms), or with `literal=true` that of eqs 7.2 and 7.3. M_Trace = sqrt(trace/m), and M_KNAS the
root of `knas` (eq. D.11), whose gradients are those of the loss, as in KNAS itself; knas_label has those of the labels'
logits, as the thesis has them. naswot_raw is NASWOT as the published code has it, `naswot(of=inputs)`.
GraSP counts by its absolute value, as in eq. 7.3: in this form it correlates with the others as in Table 7.4.

    literal:  grad   ||g||_2      snip   |theta . g|      grasp   |1/m sum_i theta . H_i g_i|      g the mean gradient

Options:
    metric      M: grad, snip, grasp, trace, knas, knas_label, fisher, synflow (its logarithm), naswot or naswot_raw
    kernel      label: the tangent kernel of kappa and M_Trace; layers: as the published code, `ntk_cond(of=layers)`
    form        the formula above: thesis, code, realizable or non_realizable
    literal     true for grad, snip and grasp as in eqs 7.2 and 7.3
    mu          weight of the second term (thesis, code)
    nu          position of its minimum (thesis, code)
    t           half the power in it (thesis, non_realizable); the number of training steps in the corollary
    rate        eta/c, the learning rate over a constant of the network (non_realizable)

Beware: there are no good defaults of mu and nu: HNAS tunes them by Bayesian optimisation on networks that it trains,
and the published correlations are those of tuned ones. The default mu = 0 leaves kappa/M; an untuned mu may reverse the
order (as mu = .01, nu = 0 did on NAS-Bench-201). A metric that is not positive, or a singular kernel, gives no score. A
layer before a batch norm is scale-invariant, so that theta . g = 0 for it: the literal SNIP depends on little of a
network. With M from NASWOT the thesis' bounds have almost no correlation (.09 and .05, Table 7.12), those of NASWOT as
defined here the same as NASWOT itself (.75, see docs/results.md).

Shu. Understanding and improving neural architecture search (thesis, chapter 7); Shu, Dai, Wu, Low. Unifying and
boosting gradient-based training-free neural architecture search. NeurIPS 2022. arXiv:2201.09785
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from epochzero.engine import Handle, Need, Pass, Proxy, Trace, need, proxy
from epochzero.errors import DegenerateError, UserError
from epochzero.proxies.fisher import fisher
from epochzero.proxies.grad_norm import grad_norm
from epochzero.proxies.grasp import grasp
from epochzero.proxies.knas import knas
from epochzero.proxies.nasi import squared_norm
from epochzero.proxies.naswot import naswot
from epochzero.proxies.ntk import condition_number
from epochzero.proxies.ntk import kernel as tangent_kernel
from epochzero.proxies.sigeo import along
from epochzero.proxies.snip import snip
from epochzero.proxies.synflow import synflow

METRICS: dict[str, Proxy] = {
    "grad": grad_norm,
    "snip": snip,
    "grasp": grasp,
    "knas": knas,
    "knas_label": knas.with_settings(variant="label"),
    "fisher": fisher,
    "synflow": synflow,
    "naswot": naswot,
    "naswot_raw": naswot.with_settings(of="inputs"),
}
KERNELS = {"label": ("kernel_label",), "layers": ("network", "labels")}
FORMS = ("thesis", "code", "realizable", "non_realizable")


def literal_grad(trace: Trace) -> Tensor:
    return squared_norm(trace).sqrt()


def literal_snip(trace: Trace) -> Tensor:
    return along(trace).abs()


def literal_grasp(trace: Trace) -> Tensor:
    """Returns |1/m sum_i theta . H_i g_i|, one sample's loss at a time, with all samples in the batch norms."""
    network: Handle = trace.network
    names = network.network.trainable
    weights = dict(network.weights) | {name: network.weights[name].detach().requires_grad_() for name in names}
    leaves = [weights[name] for name in names]
    with torch.enable_grad():
        logits = network.network.forward(network.x, weights, network.norm)
        assert network.y is not None
        losses = network.loss.each(logits, network.y)  # [B]
        if not losses.requires_grad:
            raise DegenerateError("the loss does not depend on anything trainable")
        total = torch.zeros((), dtype=torch.float64, device=losses.device)
        for loss in losses:
            g = torch.autograd.grad(loss, leaves, create_graph=True, allow_unused=True)
            pairs = [(one, leaf) for one, leaf in zip(g, leaves, strict=True) if one is not None]
            squared = torch.stack([(one * one.detach()).sum() for one, _ in pairs]).sum()
            hg = torch.autograd.grad(squared, [leaf for _, leaf in pairs], retain_graph=True, allow_unused=True)
            products = [(leaf * h).sum() for (_, leaf), h in zip(pairs, hg, strict=True) if h is not None]
            total = total + torch.stack(products).sum().detach().double()
    return (total / len(losses)).abs()


LITERAL: dict[str, tuple[Need, Callable[[Trace], Tensor]]] = {
    "grad": (need(Pass(), "parameter_gradients"), literal_grad),
    "snip": (need(Pass(), "parameters", "parameter_gradients"), literal_snip),
    "grasp": (need(Pass(), "network", "loss"), literal_grasp),
}


def needs(metric: str, kernel: str, form: str, literal: bool, t: float, **others: float) -> Sequence[Need]:
    if metric not in (*METRICS, "trace") or form not in FORMS:
        raise UserError(f"hnas takes metric={', '.join([*METRICS, 'trace'])} and form={', '.join(FORMS)}.")
    if literal and metric not in LITERAL:
        raise UserError(f"hnas has literal forms of {', '.join(LITERAL)} only, not of {metric}.")
    if not 0 < t < math.inf or not all(map(math.isfinite, others.values())):
        raise UserError("hnas takes a positive t, and finite mu, nu and rate.")
    if kernel not in KERNELS:
        raise UserError(f"hnas takes kernel={' or kernel='.join(KERNELS)}, not {kernel!r}.")
    theta = need(Pass(), *KERNELS[kernel], "logits")
    if metric == "trace":
        return [theta]
    measured = LITERAL[metric][0] if literal else METRICS[metric].needs[0]
    return [measured] if form == "realizable" else [measured, theta]


# recipe 3: in populations of AutoFormer networks, layers that work on tokens were missing
# recipe 4: with metric=naswot, rectifiers other than ReLU count too
@proxy(needs=needs, higher_is_better=False, recipe=4)
def hnas(
    *traces: Trace,
    metric: str = "trace",
    kernel: str = "label",
    form: str = "thesis",
    literal: bool = False,
    mu: float = 0.0,
    nu: float = 0.0,
    t: float = 1.0,
    rate: float = 1.0,
) -> Tensor:
    theta = None if form == "realizable" and metric != "trace" else tangent_kernel(traces[-1], kernel)
    m = measured(traces, metric, literal, theta)
    if not m > 0:
        raise DegenerateError(f"the metric {metric} is {float(m):.3g}, and the bound needs a positive one")
    if form == "realizable":
        return 1 / m
    assert theta is not None
    kappa = condition_number(theta)
    if form == "code":
        return kappa / (m + 1e-6) + mu * (m**2 - nu**2).abs()
    if form == "non_realizable":
        samples = len(traces[-1].logits)
        return samples / 2 * (1 - rate * m**2 / samples).abs() ** (2 * t) + kappa / m
    return kappa / m + mu * (m**2 - nu).abs() ** (2 * t)


def measured(traces: Sequence[Trace], metric: str, literal: bool, theta: Tensor | None) -> Tensor:
    """Returns the metric M."""
    if theta is not None and metric == "trace":
        return (theta.trace() / len(theta)).sqrt()
    if literal:
        return LITERAL[metric][1](traces[0]).double()
    proxy_of_metric = METRICS[metric]
    value = torch.as_tensor(proxy_of_metric.compute(traces[0], **proxy_of_metric.resolved)).double()
    if metric.startswith("knas"):
        return value.sqrt()
    return value.abs() if metric == "grasp" else value
