r"""Whether the summed logits respond to the input, or their gradients there are nothing but rounding.

What a batch norm gives in train mode has a sum over the batch that does not depend on what it was given. Where nothing
but linear layers follow, neither has the sum of the logits z, and its gradients are what rounding leaves of terms that
cancel. So gradients that are faint beside the logits are compared with those under random signs s, which come the same
way and do not cancel:

    |d sum(z) / dx| <= 1000 eps |d sum(s z) / dx|

Rounding leaves up to 10 eps of them; in networks that respond it is a tenth or more, of any precision.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from epochzero.engine.single.watch import random_signs

FAINT = 0.1
"""a response to the whole of the input, beside the logits, below which it is looked at closely"""
ROUNDING = 1000
UNFELT = "the sum of the logits does not depend on the input: its gradients are no more than rounding"


Signed = Callable[[Tensor], Tensor]
"""gives the responses of the logits under signs [B, K]"""


def are_rounding(responses: Tensor, x: Tensor, logits: Tensor, signed: Signed) -> Tensor:
    """Of which networks [P] the responses [P, B, ...] to x [B, ...] are rounding, given logits [P, B, K]."""
    faint = are_faint(responses, x, logits)
    return faint_and_rounding(faint, responses, logits, signed) if faint.any() else faint


def are_faint(responses: Tensor, x: Tensor, logits: Tensor) -> Tensor:
    """Which are to be looked at closely. Zeros are no rounding."""
    size = _size(responses)
    return (size > 0) & (size * _size(x[None]) < FAINT * logits.flatten(1).double().abs().sum(1))


def faint_and_rounding(faint: Tensor, responses: Tensor, logits: Tensor, signed: Signed) -> Tensor:
    least = ROUNDING * torch.finfo(responses.dtype).eps
    return faint & (_size(responses) <= least * _size(signed(random_signs(logits[0], 0, 0))))


def _size(of_networks: Tensor) -> Tensor:
    """[P], without a copy."""
    dims = tuple(range(1, of_networks.dim()))
    size: Tensor = torch.linalg.vector_norm(of_networks.detach(), dim=dims, dtype=torch.float64)
    return size
