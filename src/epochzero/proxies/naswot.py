r"""NASWOT: the diversity of the on-off patterns of a network's ReLUs on different inputs.

Input x_i switches each of the A ReLUs on or off, which gives a code c_i in {0,1}^A. Inputs with the same code
pass through the same linear map.

    K_ij  = A - hamming(c_i, c_j)  =  c_i . c_j + (1 - c_i) . (1 - c_j)
    score = log |det K|

Options:
    of          signs: K as above; inputs: the published code of HNAS, K_ij = z_i . z_j with z_i the inputs of the ReLUs

ReLU6, leaky ReLU, GELU, SiLU, hard swish and their like count as ReLUs: on where their input is positive.

Beware: it needs such activations; a network of tanh or sigmoid has no score. It grows with the number of ReLUs and of
samples, so compare networks on the same batch only. If two inputs share a code, as in small networks or for repeated
samples, there is no score. Weak on NAS-Bench-101 (.31, SiGeo's Table 2).

Mellor, Turner, Storkey, Crowley. Neural architecture search without training. ICML 2021. arXiv:2006.04647
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from epochzero.engine import Need, Pass, Trace, check_samples, need, of_network, proxy, together
from epochzero.engine.population.reductions import Maps, agreements
from epochzero.engine.spectrum import extreme_eigenvalues
from epochzero.errors import DegenerateError, UserError


def counts(before: Maps) -> Tensor:
    """Returns the same for many networks [B, M, ...]."""
    return agreements(before).double()  # [M, B, B]


def whole(before: Maps) -> tuple[Tensor, None]:
    return agreements(before).movedim(0, 1), None  # [B, M, B]


def precise(whole: Tensor, _: None) -> Tensor:
    return whole.movedim(1, 0).double()  # [M, B, B]


@together(counts, spread=True, staged=(whole, precise))
def agreement(before: Tensor) -> Tensor:
    """Returns the number of a layer's ReLUs on which each pair of inputs agrees."""
    return counts(before.unsqueeze(1))[0]  # [B, B]


def products(before: Tensor) -> Tensor:
    """Returns the products of the inputs of a layer's ReLUs for each pair of samples."""
    z = before.flatten(1).double()
    return z @ z.mT  # [B, B]


def agreed(trace: Trace) -> Tensor:
    """Returns the same over all ReLUs."""
    kernel = of_network(torch.clone, trace, "relus")  # [B, B]
    if kernel is None:
        raise DegenerateError("the network has no ReLU, nor GELU, SiLU or the like")
    check_samples(len(kernel))
    return kernel  # type: ignore[no-any-return]


def log_determinant(kernel: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns log |det K|, and the smallest and largest eigenvalue."""
    return torch.linalg.slogdet(kernel).logabsdet, *extreme_eigenvalues(kernel)


def needs(of: str) -> Sequence[Need]:
    if of not in ("signs", "inputs"):
        raise UserError(f"naswot takes of=signs or of=inputs, not {of!r}.")
    return [need(Pass(), relus=agreement if of == "signs" else products)]


# recipe 2: rectifiers other than ReLU count too
@proxy(needs=needs, higher_is_better=True, tf32=("nb101",), recipe=2)
def naswot(trace: Trace, *, of: str = "signs") -> Tensor:
    kernel = agreed(trace)
    score, low, high = of_network(log_determinant, trace, "relus")
    if low <= len(kernel) * torch.finfo(kernel.dtype).eps * high:
        same = (kernel == kernel[0, 0]).triu(1).nonzero()
        if len(same):
            raise DegenerateError(f"det K = 0: inputs {same[0, 0]} and {same[0, 1]} share a code")
        raise DegenerateError("det K = 0: the inputs' codes are linearly dependent")
    return score  # type: ignore[no-any-return]
