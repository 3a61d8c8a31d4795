r"""NASWOT: how differently the ReLUs of a network fire on different inputs.

Input x_i switches each of the A ReLUs on or off, which gives a code c_i in {0,1}^A. Inputs that share a code go
through the same linear map and cannot be told apart by it.

    K_ij  = A - hamming(c_i, c_j)  =  c_i . c_j + (1 - c_i) . (1 - c_j)
    score = log |det K|

Beware: it needs ReLUs; a network of GELU or SiLU has no score. It grows with the number of ReLUs and of samples, so
compare networks on one batch only. Two inputs with one code, as in small networks or with a sample given twice, leave
no score. Weak on NAS-Bench-101 (.31, SiGeo's Table 2).

Mellor, Turner, Storkey, Crowley. Neural architecture search without training. ICML 2021. arXiv:2006.04647
"""

from __future__ import annotations

import torch
from torch import Tensor

from epochzero.engine import Pass, Trace, check_samples, need, proxy
from epochzero.errors import DegenerateError


def agreement(before: Tensor) -> Tensor:
    """On how many of a layer's ReLUs each pair of inputs agrees."""
    on = (before > 0).float()
    if on.dim() == 4 and on.is_contiguous(memory_format=torch.channels_last):
        on = on.permute(0, 2, 3, 1)  # the order of the ReLUs does not matter, and this needs no copy
    on = on.flatten(1)  # [B, A]
    both = (on @ on.mT).double()  # [B, B]
    fired = both.diagonal()  # [B]
    return 2 * both + (on.shape[1] - fired[:, None] - fired[None, :])  # [B, B]


@proxy(needs=[need(Pass(), relus=agreement)], higher_is_better=True)
def naswot(trace: Trace) -> Tensor:
    if not trace.relus:
        raise DegenerateError("the network has no ReLU")
    kernel = torch.stack(trace.relus).sum(0)  # [B, B]
    check_samples(len(kernel))
    same = (kernel == kernel[0, 0]).triu(1).nonzero()
    if len(same):
        raise DegenerateError(f"det K = 0: inputs {same[0, 0]} and {same[0, 1]} share a code")
    eigenvalues: Tensor = torch.linalg.eigvalsh(kernel)  # [B], ascending
    if eigenvalues[0] <= len(kernel) * torch.finfo(kernel.dtype).eps * eigenvalues[-1]:
        raise DegenerateError("det K = 0: the inputs' codes are linearly dependent")
    return eigenvalues.log().sum()
