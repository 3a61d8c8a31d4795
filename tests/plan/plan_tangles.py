"""Small random networks for tests that hold of any plan."""

from __future__ import annotations

from hypothesis import strategies as st

from epochzero.plan import Builder, Plan
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.ops.wiring import Add, Zero


@st.composite
def tangles(draw: st.DrawFn) -> Plan:
    """A network without any order in its blocks: each node reads any earlier ones and lives anywhere."""
    net = Builder()
    sources = [net.input((4,), f"in{i}") for i in range(draw(st.integers(1, 2)))]
    for i in range(draw(st.integers(1, 9))):
        op = draw(st.sampled_from([Linear(4), ReLU(), BatchNorm(), Add(), Zero()]))
        arity = draw(st.integers(1, 3)) if op == Add() else 1
        block = draw(st.sampled_from(["", "a.", "a.b.", "a.c.", "d.", "d.e.f."]))
        read = draw(st.lists(st.sampled_from(sources), min_size=arity, max_size=arity))
        sources.append(net.add(op, *read, name=f"{block}n{i}"))
    return net.plan()
