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

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from epochzero.engine import Pass, Trace, check_samples, need, of_network, proxy
from epochzero.engine.spectrum import extreme_eigenvalues
from epochzero.errors import DegenerateError


@contextmanager
def short_products() -> Iterator[None]:
    """TF32 on a GPU: it holds 0 and 1 exactly, and adds in single precision."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def agreement(before: Tensor) -> Tensor:
    """On how many of a layer's ReLUs each pair of inputs agrees."""
    on = (before > 0).float()
    if on.dim() == 4 and not on.is_cuda:
        on = on.movedim(1, -1)  # the order of the ReLUs does not matter, and channels lie last on the CPU
    on = on.flatten(1)  # [B, A]
    with short_products():
        both = (on @ on.mT).double()  # [B, B]
    fired = both.diagonal()  # [B]
    return 2 * both + (on.shape[1] - fired[:, None] - fired[None, :])  # [B, B]


def agreed(trace: Trace) -> Tensor:
    """The same over all ReLUs."""
    kernel = of_network(torch.clone, trace, "relus")  # [B, B]
    if kernel is None:
        raise DegenerateError("the network has no ReLU")
    check_samples(len(kernel))
    return kernel  # type: ignore[no-any-return]


def log_determinant(kernel: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log |det K|, and the ends of its spectrum."""
    return torch.linalg.slogdet(kernel).logabsdet, *extreme_eigenvalues(kernel)


@proxy(needs=[need(Pass(), relus=agreement)], higher_is_better=True)
def naswot(trace: Trace) -> Tensor:
    kernel = agreed(trace)
    found, low, high = of_network(log_determinant, trace, "relus")
    if low <= len(kernel) * torch.finfo(kernel.dtype).eps * high:
        same = (kernel == kernel[0, 0]).triu(1).nonzero()
        if len(same):
            raise DegenerateError(f"det K = 0: inputs {same[0, 0]} and {same[0, 1]} share a code")
        raise DegenerateError("det K = 0: the inputs' codes are linearly dependent")
    return found  # type: ignore[no-any-return]
