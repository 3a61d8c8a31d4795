r"""Jacobian covariance: how differently the network responds to small changes of different inputs.

    J_n   = d(sum of logits)/dx_n, flattened          one row for each sample
    R     = corrcoef(J)                               [B, B], eigenvalues lambda
    score = - sum_i [log(lambda_i + k) + 1/(lambda_i + k)],   k = 1e-5

Beware: a sum over samples: compare networks on one batch only, and with at least two samples. One pair of inputs with
nearly equal responses (a tiny eigenvalue) outweighs the rest of the batch. No value where nothing but linear layers
follow on the last batch norms (TransNAS-Bench-101, `nb301_naslib`): the sum of the logits is the same for any input.
The wrong way on NAS-Bench-101 (-.29) and nothing on NAS-Bench-301 (-.04, SiGeo's Table 2).

Mellor, Turner, Storkey, Crowley. Neural architecture search without training (first version, 2020).
arXiv:2006.04647v1
"""

from __future__ import annotations

import torch
from torch import Tensor

from epochzero.engine import Pass, Trace, check_samples, need, of_network, proxy
from epochzero.errors import DegenerateError

K = 1e-5


@proxy(needs=[need(Pass(), "input_gradients")], higher_is_better=True)
def jacov(trace: Trace) -> Tensor:
    *sizes, found = of_network(spread, trace, "input_gradients")
    check_samples(len(sizes[0]))
    check_responses(*sizes)
    return found  # type: ignore[no-any-return]


def spread(responses: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The score, from the trace and the determinant that the eigenvalues would give, with what `correlation` says."""
    largest, length, correlated = correlation(responses)
    shifted = correlated + K * torch.eye(len(correlated), dtype=correlated.dtype, device=correlated.device)
    root, _ = torch.linalg.cholesky_ex(shifted)
    return largest, length, -(2 * root.diagonal().log().sum() + torch.cholesky_inverse(root).trace())


def correlation(responses: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """How large each sample's response is, whole and around its mean [B], and how they correlate [B, B]."""
    rows = responses.flatten(1).double()  # [B, N]
    centred = rows - rows.mean(1, keepdim=True)
    length = centred.norm(dim=1)  # [B]
    unit = centred / length[:, None]
    return rows.abs().amax(1), length, unit @ unit.mT


def check_responses(largest: Tensor, length: Tensor) -> None:
    """Refuse responses that have no correlation."""
    if not largest.any():
        raise DegenerateError("the output does not depend on the input")
    flat = (length == 0).nonzero()
    if len(flat):
        raise DegenerateError(f"the response to input {flat[0, 0]} is the same everywhere: it has no correlation")
