r"""Neural tangent kernel at initialisation: its trace norm and its condition number.

    Theta_ij  = < d a_i/d theta, d a_j/d theta >      theta everything trainable, a_i as `of` names it for sample i
    ntk_trace = sum_i Theta_ii                        of=outputs: over every logit, eq. 9 of NASI
    ntk_cond  = lambda_max / lambda_min               kappa; lower is better

Exact, also under train-mode batch norm, which couples the samples: one backward pass through the whole batch for each
row.

Options:
    of          label: the logit of the sample's class (as in HNAS, whose code leaves out the parameters of batch
                norms; here theta is everything trainable); sum: the sum of its logits (TE-NAS), which needs no labels;
                outputs: every logit; work and memory grow by the number of classes; layers: HNAS's published code,
                each sample's part of the gradient of the summed logits of the labels, from hooks on conv and linear
                layers; equal to label where no layer mixes samples
    norm        train: batch norms use the batch's statistics; eval: the running ones

Beware: one backward pass for each sample, so for B samples it costs B times as much as a gradient score.

Beware (ntk_trace): larger is better only up to a bound: NASI bounds the trace norm, since beyond it networks generalise
worse.

Beware (ntk_cond): a ratio of the largest to the smallest of as many eigenvalues as samples, so it grows with the batch:
compare networks on the same batch only. A kernel whose smallest eigenvalue is only rounding has no condition number
(the published codes then give a huge, a negative or a made-up one).

Jacot, Gabriel, Hongler. Neural tangent kernel. NeurIPS 2018; Shu, Cai, Dai, Ooi, Low. NASI. ICLR 2022.
arXiv:2109.00817; Chen, Gong, Wang. TE-NAS. ICLR 2021. arXiv:2102.11535
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from epochzero.engine import Need, Pass, Trace, check_samples, need, of_network, proxy
from epochzero.engine.layer_kernel import layer_kernel
from epochzero.errors import DegenerateError, UserError

ROWS = ("label", "sum", "outputs", "layers")


def kernel_of(of: str, norm: str) -> Sequence[Need]:
    if of not in ROWS or norm not in ("train", "eval"):
        raise UserError(f"The tangent kernel takes of={', '.join(ROWS)} and norm=train or norm=eval.")
    if of == "layers":
        return [need(Pass(norm=norm), "network", "labels")]  # type: ignore[arg-type]
    return [need(Pass(norm=norm), f"kernel_{of}")]  # type: ignore[arg-type]


def kernel(trace: Trace, of: str) -> Tensor:
    if of == "layers":
        return layer_kernel(trace.network)
    matrix: Tensor = of_network(torch.clone, trace, f"kernel_{of}")
    return matrix


def condition_number(theta: Tensor) -> Tensor:
    """Returns lambda_max / lambda_min of a kernel matrix."""
    check_samples(len(theta))
    eigenvalues: Tensor = torch.linalg.eigvalsh(theta)  # ascending
    noise = len(theta) * torch.finfo(torch.float32).eps * eigenvalues[-1]
    if not eigenvalues[0] > noise:
        raise DegenerateError("the tangent kernel is singular: its smallest eigenvalue is rounding")
    return eigenvalues[-1] / eigenvalues[0]


@proxy(needs=kernel_of, higher_is_better=True)
def ntk_trace(trace: Trace, *, of: str = "label", norm: str = "train") -> Tensor:
    """Trace norm of the neural tangent kernel: the speed at which the network can learn."""
    return kernel(trace, of).trace()


@proxy(needs=kernel_of, higher_is_better=False)
def ntk_cond(trace: Trace, *, of: str = "label", norm: str = "train") -> Tensor:
    """Condition number kappa of the neural tangent kernel: the imbalance of its learning speeds."""
    return condition_number(kernel(trace, of))
