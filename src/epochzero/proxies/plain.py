r"""Plain: the first-order change of the loss when every weight is removed, with its sign.

    score = sum_l sum W_l * dL/dW_l

A layer before a batch norm does not change the output when it is scaled, so it adds nothing: what is left comes
from the head and from layers without a norm. Good networks have low values in practice.

Beware: where everything has a norm, it depends on little more than the head. Terms of either sign cancel, so the value
depends on the batch and on the weights drawn: ours and NAS-Bench-Suite-Zero's agree little. The papers count it as
higher-is-better and report negative correlations; here lower is better, and the same result is positive.

Mozer, Smolensky. Skeletonization. NeurIPS 1988; as a proxy: Abdelfattah, Mehrotra, Dudziak, Lane. Zero-cost
proxies for lightweight NAS. ICLR 2021. arXiv:2101.08134
"""

from __future__ import annotations

from torch import Tensor

from epochzero.engine import Pass, Trace, each_layer, need, proxy


# recipe 2: in populations of AutoFormer networks, layers that work on tokens were missing
@proxy(needs=[need(Pass(), "weights", "gradients")], higher_is_better=False, recipe=2)
def plain(trace: Trace) -> Tensor:
    return each_layer(inner, [trace], "weights", "gradients").sum()  # [L] -> []


def inner(one: Tensor, other: Tensor) -> Tensor:
    return (one * other).sum()
