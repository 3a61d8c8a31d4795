r"""L2 norm: the norms of the weights of conv and linear layers.

    score = sum_l ||W_l||_2

Beware: before training, a layer's norm is nearly fixed by its shape and the initialisation. So this counts layers,
weighted by their shapes, and depends on neither the data nor the connections.

Abdelfattah, Mehrotra, Dudziak, Lane. Zero-cost proxies for lightweight NAS. ICLR 2021. arXiv:2101.08134
"""

from __future__ import annotations

from torch import Tensor

from epochzero.engine import Pass, Trace, each_layer, need, proxy
from epochzero.proxies.grad_norm import norm


# recipe 2: in populations of AutoFormer networks, layers that work on tokens were missing
@proxy(needs=[need(Pass(), "weights")], higher_is_better=True, tf32=("nb101",), recipe=2)
def l2_norm(trace: Trace) -> Tensor:
    return each_layer(norm, [trace], "weights").sum()  # [L] -> []
