r"""EPE-NAS: the similarity of the network's responses to inputs of the same class.

    J_n = d(sum of logits)/dx_n;   R_c = corrcoef of the rows of class c;   s_c = sum log(|R_c| + k),  k = 1e-5
    score = sum_c |s_c|                                            up to 100 classes
    score = sum_{c,c'} |s_c/|c| - s_c'/|c'|| / #classes seen       beyond

Options:
    classes     number of classes that selects one of the two forms; 0 for the number of logits. The published script
                passes 10 for every data set and never uses the second form, as classes=10 does

Beware: a class with one sample in the batch adds next to nothing, so with many classes the batch has to be large (the
paper's had 256 samples). No value if only linear layers follow the last batch norms (TransNAS-Bench-101,
NAS-Bench-301): the sum of the logits is the same for any input. It is reported as .00 on NAS-Bench-101 and
NAS-Bench-301 (SiGeo's Table 2).

Lopes, Alirezazadeh, Alexandre. EPE-NAS: efficient performance estimation without training for neural architecture
search. ICANN 2021. arXiv:2102.08099
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from epochzero.engine import Need, Pass, Trace, check_samples, need, of_network, proxy
from epochzero.errors import UserError
from epochzero.proxies.jacov import check_responses, correlation

K = 1e-5


def needs(classes: int) -> Sequence[Need]:
    if classes < 0:
        raise UserError(f"epe_nas takes a number of classes, or 0 for as many as there are logits, not {classes}.")
    return [need(Pass(), "input_gradients", "labels", "logits")]


@proxy(needs=needs, higher_is_better=True)
def epe_nas(trace: Trace, *, classes: int = 0) -> Tensor:
    _, length, correlated = of_network(correlation, trace, "input_gradients")
    check_samples(len(correlated))
    check_responses(torch.ones(1), length)
    seen, which = torch.unique(trace.labels.to(correlated.device), return_inverse=True)
    logs = torch.where(which[:, None] == which, (correlated.abs() + K).log(), 0)  # [B, B]
    s = logs.new_zeros(len(seen)).index_add_(0, which, logs.sum(1))  # [classes seen]
    if (classes or trace.logits.shape[1]) <= 100:
        return s.abs().sum()
    s = s / torch.bincount(which)
    return (s[:, None] - s[None, :]).abs().sum() / len(s)
