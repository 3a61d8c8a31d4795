"""Size: multiply-accumulates and parameters in one number.

    score = log(flops) + log(params)

A baseline: where `flops` and `params` disagree, as between wide late and narrow early layers, it takes the middle.

Beware: it depends on the network's size, not on its wiring; a proxy that does not beat it measures size.

Ning, Tang, Li, Zhou, Liang, Yang, Wang. Evaluating efficient performance estimators of neural architectures.
NeurIPS 2021. arXiv:2008.03064 (each of the two as a baseline; the sum is ours)
"""

from __future__ import annotations

import math

from epochzero.engine import Pass, Trace, need, proxy
from epochzero.errors import DegenerateError


@proxy(needs=[need(Pass(), "flops", "params")], higher_is_better=True)
def size(trace: Trace) -> float:
    if not trace.flops or not trace.params:
        raise DegenerateError("the network has no parameters or no multiply-accumulates")
    return math.log(trace.flops) + math.log(trace.params)
