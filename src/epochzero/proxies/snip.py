r"""SNIP: the sensitivity of the loss to each connection.

    score = sum_l sum |W_l * dL/dW_l|

which is |dL/dc| for masks c = 1 that multiply the weights.

Beware: it ranks NAS-Bench-101 in the wrong order (-.19, SiGeo's Table 2), and the three spaces of NAS-Bench-1Shot1 too
(-.49 to -.79, NASI's Table 3). It ranks nearly as `grad_norm` does (Spearman 1.00 on NAS-Bench-201, thesis Table 7.4).

Lee, Ajanthan, Torr. SNIP: single-shot network pruning based on connection sensitivity. ICLR 2019.
arXiv:1810.02340
"""

from __future__ import annotations

from torch import Tensor

from epochzero.engine import Pass, Trace, each_layer, foreach, need, proxy
from epochzero.engine.passes import in_lists


# recipe 2: in populations of AutoFormer networks, layers that work on tokens were missing
@proxy(needs=[need(Pass(), "weights", "gradients")], higher_is_better=True, tf32=("nb101",), recipe=2)
def snip(trace: Trace) -> Tensor:
    return each_layer(felt, [trace], "weights", "gradients").sum()  # [L] -> []


@in_lists(lambda weights, gradients: foreach.norm(foreach.mul(weights, gradients), 1))
def felt(weight: Tensor, gradient: Tensor) -> Tensor:
    """Returns the sum of the absolute sensitivities of a layer's connections."""
    return (weight * gradient).abs().sum()
