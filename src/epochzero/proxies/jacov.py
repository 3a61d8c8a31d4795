r"""Jacobian covariance: how differently the network responds to small changes of different inputs.

    J_n   = d(sum of logits)/dx_n, flattened          one row for each sample
    R     = corrcoef(J)                               [B, B], eigenvalues lambda
    score = - sum_i [log(lambda_i + k) + 1/(lambda_i + k)],   k = 1e-5

Beware: a sum over samples: compare networks on one batch only, and with at least two samples. One pair of inputs with
nearly equal responses (a tiny eigenvalue) outweighs the rest of the batch. The wrong way on NAS-Bench-101 (-.29) and
nothing on NAS-Bench-301 (-.04, SiGeo's Table 2).

Mellor, Turner, Storkey, Crowley. Neural architecture search without training (first version, 2020).
arXiv:2006.04647v1
"""

from __future__ import annotations

import torch
from torch import Tensor

from epochzero.engine import Pass, Trace, check_samples, need, proxy
from epochzero.errors import DegenerateError

K = 1e-5


@proxy(needs=[need(Pass(), "input_gradients")], higher_is_better=True)
def jacov(trace: Trace) -> Tensor:
    rows = trace.input_gradients.flatten(1).double()  # [B, N]
    check_samples(len(rows))
    if not rows.any():
        raise DegenerateError("the output does not depend on the input")
    rows = rows - rows.mean(1, keepdim=True)
    length = rows.norm(dim=1, keepdim=True)  # [B, 1]
    flat = (length == 0).nonzero()
    if len(flat):
        raise DegenerateError(f"the response to input {flat[0, 0]} is the same everywhere: it has no correlation")
    rows = rows / length
    eigenvalues: Tensor = torch.linalg.eigvalsh(rows @ rows.mT) + K  # [B]
    return -(eigenvalues.log() + 1 / eigenvalues).sum()
