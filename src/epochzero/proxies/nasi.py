r"""NASI's approximations of the tangent kernel's trace norm.

    nasi_trace     = || 1/b sum_x grad L_x ||_2^2           one backward pass for the whole batch
    nasi_trace_sum = sum_x || grad L_x ||_2^2               one for each sample ("sum" in NASI's Table 7)

L_x is the cross-entropy of sample x, the gradient is over everything trainable.

Beware: larger is better only up to a bound. NASI searches under a bound on the trace norm, and its published
correlations are those of the networks within that bound.

Beware (nasi_trace): gradients of different samples cancel in the mean, and the smaller the batch, the further it is
from the trace norm (Pearson .74 to .86 for batches of 4 to 128, against .88 for the sum: space S1 in the thesis' Table
6.7).

Beware (nasi_trace_sum): one backward pass for each sample.

Shu, Cai, Dai, Ooi, Low. NASI: label- and data-agnostic neural architecture search at initialization. ICLR 2022.
arXiv:2109.00817
"""

from __future__ import annotations

import torch
from torch import Tensor

from epochzero.engine import Pass, Trace, each_layer, need, of_network, proxy
from epochzero.errors import DegenerateError
from epochzero.proxies.grad_norm import norm


def squared_norm(trace: Trace) -> Tensor:
    """Returns the squared norm of the batch's gradient, over everything trainable."""
    norms = each_layer(norm, [trace], "parameter_gradients")
    if not len(norms):
        raise DegenerateError("the network has nothing to train")
    return norms.double().square().sum()


@proxy(needs=[need(Pass(), "parameter_gradients")], higher_is_better=True, tf32=("nb101",))
def nasi_trace(trace: Trace) -> Tensor:
    """Trace norm of the tangent kernel, approximated from one mini-batch gradient."""
    return squared_norm(trace)


@proxy(needs=[need(Pass(), "kernel_loss")], higher_is_better=True)
def nasi_trace_sum(trace: Trace) -> Tensor:
    """Trace norm of the tangent kernel, approximated from each sample's loss gradient."""
    trace_norm: Tensor = of_network(torch.trace, trace, "kernel_loss")
    return trace_norm
