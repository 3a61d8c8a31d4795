"""Params: how many trainable numbers the network has.

The baseline that every other proxy has to beat.
"""

from __future__ import annotations

from epochzero.engine import Pass, Trace, need, proxy


@proxy(needs=[need(Pass(), "params")], higher_is_better=True)
def params(trace: Trace) -> float:
    return trace.params
