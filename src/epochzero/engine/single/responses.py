r"""The check that input gradients of the summed logits are more than rounding.

The output of a batch norm in train mode has a sum over the batch that does not depend on its input. If only linear
layers follow, the sum of the logits z does not depend on it either, and its gradients are the rounding errors of terms
that cancel. So gradients that are small compared with the logits are compared with those under random signs s, which
take the same path and do not cancel:

    |d sum(z) / dx| <= 1000 eps |d sum(s z) / dx|

Rounding leaves up to 10 eps of them; in networks that respond it is a tenth or more, of any precision.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from epochzero.engine.single.watch import random_signs

FAINT = 0.1
"""the ratio of response to logits below which a response is compared with that under random signs"""
ROUNDING = 1000
UNFELT = "the sum of the logits does not depend on the input: its gradients are no more than rounding"


Signed = Callable[[Tensor], Tensor]
"""a function that returns the responses of the logits under signs [B, K]"""


def are_rounding(responses: Tensor, x: Tensor, logits: Tensor, signed: Signed) -> Tensor:
    """Returns the networks [P] whose responses [P, B, ...] to x [B, ...] are rounding, given logits [P, B, K]."""
    faint = are_faint(responses, x, logits)
    return faint_and_rounding(faint, responses, logits, signed) if faint.any() else faint


def are_faint(responses: Tensor, x: Tensor, logits: Tensor) -> Tensor:
    """Returns the networks with faint responses, which have to be compared. Zeros are not rounding."""
    size = _size(responses)
    return (size > 0) & (size * _size(x[None]) < FAINT * logits.flatten(1).double().abs().sum(1))


def faint_and_rounding(faint: Tensor, responses: Tensor, logits: Tensor, signed: Signed) -> Tensor:
    least = ROUNDING * torch.finfo(responses.dtype).eps
    return faint & (_size(responses) <= least * _size(signed(random_signs(logits[0], 0, 0))))


def _size(of_networks: Tensor) -> Tensor:
    """Returns the norm of each network's tensor [P], without a copy."""
    dims = tuple(range(1, of_networks.dim()))
    size: Tensor = torch.linalg.vector_norm(of_networks.detach(), dim=dims, dtype=torch.float64)
    return size
