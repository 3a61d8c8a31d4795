r"""GraSP: the estimated loss of gradient flow when the weights are removed.

    score = - sum_l sum W_l * (H g)_l          g = dL/dW, H the Hessian of the loss

Beware: terms of either sign cancel, so the value depends on the batch and the weights drawn, and published values are
hard to match. The sign was chosen by experiment; it ranks the three TransNAS tasks in the wrong order (-.12 to -.43,
Dextr's Table 1). It is the most expensive of the one-batch scores: a backward pass through a backward pass.

Wang, Zhang, Grosse. Picking winning tickets before training by preserving gradient flow. ICLR 2020.
arXiv:2002.07376. The sign is that of Abdelfattah et al., arXiv:2101.08134.
"""

from __future__ import annotations

from torch import Tensor

from epochzero.engine import Pass, Trace, each_layer, need, proxy
from epochzero.proxies.plain import inner


# recipe 2: in populations of AutoFormer networks, layers that work on tokens were missing
@proxy(needs=[need(Pass(), "weights", "hessian_gradients")], higher_is_better=True, recipe=2)
def grasp(trace: Trace) -> Tensor:
    return -each_layer(inner, [trace], "weights", "hessian_gradients").sum()  # [L] -> []
