r"""Jacobian covariance: the diversity of the network's responses to small changes of different inputs.

    J_n   = d(sum of logits)/dx_n, flattened          one row for each sample
    R     = corrcoef(J)                               [B, B], eigenvalues lambda
    score = - sum_i [log(lambda_i + k) + 1/(lambda_i + k)],   k = 1e-5

Beware: it is a sum over samples: compare networks on the same batch only, with at least two samples. One pair of inputs
with nearly equal responses (a tiny eigenvalue) outweighs the rest of the batch. No value if only linear layers follow
the last batch norms (TransNAS-Bench-101, `nb301_naslib`): the sum of the logits is the same for any input. Wrong order
on NAS-Bench-101 (-.29), no correlation on NAS-Bench-301 (-.04, SiGeo's Table 2).

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
    *sizes, score = of_network(spread, trace, "input_gradients")
    check_samples(len(sizes[0]))
    check_responses(*sizes)
    return score  # type: ignore[no-any-return]


def spread(responses: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the score by trace and determinant, without eigenvalues, after the sizes that `correlation` returns."""
    largest, length, correlated = correlation(responses)
    shifted = correlated + K * torch.eye(len(correlated), dtype=correlated.dtype, device=correlated.device)
    root, _ = torch.linalg.cholesky_ex(shifted)
    return largest, length, -(2 * root.diagonal().log().sum() + torch.cholesky_inverse(root).trace())


def correlation(responses: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the size of each sample's response, whole and around its mean [B], and their correlations [B, B]."""
    rows = responses.flatten(1).double()  # [B, N]
    centred = rows - rows.mean(1, keepdim=True)
    length = centred.norm(dim=1)  # [B]
    unit = centred / length[:, None]
    return rows.abs().amax(1), length, unit @ unit.mT


def check_responses(largest: Tensor, length: Tensor) -> None:
    """Refuses responses that have no correlation."""
    if not largest.any():
        raise DegenerateError("the output does not depend on the input")
    flat = (length == 0).nonzero()
    if len(flat):
        raise DegenerateError(f"the response to input {flat[0, 0]} is the same everywhere: it has no correlation")
