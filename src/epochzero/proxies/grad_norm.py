r"""Gradient norm: the norms of the loss gradients of the weights of conv and linear layers.

    score = sum_l ||dL/dW_l||_2          L the mean cross-entropy of one batch

The sum of the layers' norms, not the norm of all gradients together.

Beware: it ranks NAS-Bench-101 in the wrong order (-.25), and NAS-Bench-301 at random (-.04, SiGeo's Table 2). Large
gradients may mean fast learning or an unstable start. It is a norm: compare networks with the same batch size and
initialisation only.

Abdelfattah, Mehrotra, Dudziak, Lane. Zero-cost proxies for lightweight NAS. ICLR 2021. arXiv:2101.08134
"""

from __future__ import annotations

import torch
from torch import Tensor

from epochzero.engine import Pass, Trace, each_layer, foreach, need, proxy
from epochzero.engine.passes import in_lists


# recipe 2: in populations of AutoFormer networks, layers that work on tokens were missing
@proxy(needs=[need(Pass(), "gradients")], higher_is_better=True, tf32=("nb101",), recipe=2)
def grad_norm(trace: Trace) -> Tensor:
    return each_layer(norm, [trace], "gradients").sum()  # [L] -> []


@in_lists(foreach.norm)
def norm(numbers: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(numbers)
    return length
