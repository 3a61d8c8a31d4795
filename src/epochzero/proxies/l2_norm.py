r"""L2 norm: how large the weights of conv and linear layers are.

    score = sum_l ||W_l||_2

Beware: before training, a layer's norm is all but fixed by its shape and the scheme that drew it. So this counts
layers, weighted by their shapes, and neither looks at data nor at what is connected to what.

Abdelfattah, Mehrotra, Dudziak, Lane. Zero-cost proxies for lightweight NAS. ICLR 2021. arXiv:2101.08134
"""

from __future__ import annotations

from torch import Tensor

from epochzero.engine import Pass, Trace, each_layer, need, proxy
from epochzero.proxies.grad_norm import norm


# recipe 2: in populations of AutoFormer networks, layers that work on tokens were missing
@proxy(needs=[need(Pass(), "weights")], higher_is_better=True, recipe=2)
def l2_norm(trace: Trace) -> Tensor:
    return each_layer(norm, [trace], "weights").sum()  # [L] -> []
