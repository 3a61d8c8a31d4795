"""FLOPs: multiply-accumulates of one forward pass for one sample.

    score = sum over operations of their multiply-accumulates

The other baseline that every proxy has to beat.

Beware: it depends on the network's cost, not on its wiring. Other tools count a multiply-accumulate as two operations,
or leave some layers out: compare numbers of one tool only. Ranks hardly change.

Ning, Tang, Li, Zhou, Liang, Yang, Wang. Evaluating efficient performance estimators of neural architectures.
NeurIPS 2021. arXiv:2008.03064
"""

from __future__ import annotations

from epochzero.engine import Pass, Trace, need, proxy


@proxy(needs=[need(Pass(), "flops")], higher_is_better=True)
def flops(trace: Trace) -> float:
    return trace.flops
