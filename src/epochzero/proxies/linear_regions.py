r"""Linear regions: the number of regions into which the network's ReLUs divide the samples.

    score = sum_i 1 / #{j : c_j = c_i}          c_i the on-off pattern of all ReLUs for sample i: distinct patterns

TE-NAS counts them for crops of 3x3 in a network of one channel, where patterns repeat. Its score is
`te_rank(ntk_cond(of=sum),linear_regions)`.

Beware: on a whole network the samples of a batch nearly always differ, so that most networks get the size of the batch
and tie. It needs ReLUs, or activations like them: for GELU and other smooth ones it counts sign patterns.

Chen, Gong, Wang. Neural architecture search on ImageNet in four GPU hours. ICLR 2021. arXiv:2102.11535
"""

from __future__ import annotations

from torch import Tensor

from epochzero.engine import Pass, Trace, need, proxy
from epochzero.proxies.naswot import agreed, agreement


# recipe 2: rectifiers other than ReLU count too
@proxy(needs=[need(Pass(), relus=agreement)], higher_is_better=True, recipe=2)
def linear_regions(trace: Trace) -> Tensor:
    agree = agreed(trace)  # [B, B]
    same = agree == agree.diagonal()[:, None]  # a sample agrees with itself on every ReLU
    return (1 / same.double().sum(1)).sum()
