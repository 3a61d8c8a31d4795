"""FLOPs: multiply-accumulates of one forward pass for one sample.

The other baseline that every proxy has to beat.
"""

from __future__ import annotations

from epochzero.engine import Pass, Trace, need, proxy


@proxy(needs=[need(Pass(), "flops")], higher_is_better=True)
def flops(trace: Trace) -> float:
    return trace.flops
