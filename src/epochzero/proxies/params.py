"""Params: the number of trainable parameters.

    score = sum of numel(w) over everything trainable

The baseline that every other proxy has to beat.

Beware: it depends on the network's size, not on its wiring. On NAS-Bench-201 it orders networks as `flops` does. Where
wiring varies more than size, it ranks worse: .37 on NAS-Bench-101 in SiGeo's Table 2.

Ning, Tang, Li, Zhou, Liang, Yang, Wang. Evaluating efficient performance estimators of neural architectures.
NeurIPS 2021. arXiv:2008.03064
"""

from __future__ import annotations

from epochzero.engine import Pass, Trace, need, proxy


@proxy(needs=[need(Pass(), "params")], higher_is_better=True)
def params(trace: Trace) -> float:
    return trace.params
