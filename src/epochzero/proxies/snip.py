r"""SNIP: how much the loss feels each connection.

    score = sum_l sum |W_l * dL/dW_l|

which is |dL/dc| for masks c = 1 that multiply the weights.

Lee, Ajanthan, Torr. SNIP: single-shot network pruning based on connection sensitivity. ICLR 2019.
arXiv:1810.02340
"""

from __future__ import annotations

import torch
from torch import Tensor

from epochzero.engine import Pass, Trace, need, proxy


@proxy(needs=[need(Pass(), "weights", "gradients")], higher_is_better=True)
def snip(trace: Trace) -> Tensor:
    return torch.stack(torch._foreach_norm(torch._foreach_mul(trace.weights, trace.gradients), 1)).sum()
