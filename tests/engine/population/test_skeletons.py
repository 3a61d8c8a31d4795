"""Plans that share a skeleton, and the nodes of many plans as arrays."""

from __future__ import annotations

import gc
import weakref
from random import Random

import pytest

from epochzero.engine.population.merge import merge
from epochzero.engine.population.node_arrays import NONE, Flat
from epochzero.plan import Builder, Plan, chain
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.wiring import Add
from epochzero.registry import spaces

SHAPE = (3, 16, 16)
THIN, WIDE = chain(SHAPE, conv=Conv(3, 1)), chain(SHAPE, relu=ReLU(), conv=Conv(3, 3, padding=1))


def two_blocks(first: Plan, second: Plan) -> Plan:
    net = Builder()
    x = net.input(SHAPE)
    a = net.inline(first, x, name="a")
    net.add(Add(), a, net.inline(second, a, name="b"), name="sum")
    return net.plan()


def test_other_blocks_in_a_skeleton_are_the_plan_that_was_built_with_them() -> None:
    built, exchanged = two_blocks(WIDE, THIN), two_blocks(THIN, THIN).with_parts([WIDE, THIN])
    assert exchanged.nodes == built.nodes and exchanged.weights == built.weights
    assert exchanged.totals == built.totals and exchanged.pieces == built.pieces
    assert exchanged.code() == built.code()


def test_a_block_of_another_shape_has_no_place_in_a_skeleton() -> None:
    plan = two_blocks(THIN, WIDE)
    net = Builder()
    side = net.add(ReLU(), net.input(SHAPE), name="side")
    net.add(ReLU(), side, name="last")
    for other in (chain(SHAPE, conv=Conv(4, 1)), chain((4, 16, 16), conv=Conv(3, 1)), net.plan(auxiliary=side)):
        with pytest.raises(ValueError, match="blocks that replace others"):
            plan.with_parts([THIN, other])
    with pytest.raises(ValueError, match="blocks that replace others"):
        plan.with_parts([THIN])


def test_networks_of_a_space_share_their_skeleton() -> None:
    space, rng = spaces["nb201"], Random(0)
    some = [space.plan(space.sample(rng), 10, SHAPE) for _ in range(4)]
    assert len({plan.skeleton for plan in some}) == 1
    assert len({part.skeleton for plan in some for part in plan.parts}) == 7  # stem, cells, two reductions, head


@pytest.mark.parametrize("space", ["nb201", "nb101", "transnas_macro", "darts_search", "mobilenet"])
def test_arrays_hold_what_the_nodes_say(space: str) -> None:
    found, rng = spaces[space], Random(1)
    plans = [found.plan(found.sample(rng), 10, (3, 32, 32)) for _ in range(4)]
    flat = Flat.of(plans)
    assert flat.firsts.tolist()[1:] == [sum(plan.size for plan in plans[: p + 1]) for p in range(4)]
    for p, plan in enumerate(plans):
        first = int(flat.firsts[p])
        for i, node in enumerate(plan.nodes, start=first):
            row, reads = flat.table[flat.rows[i]], flat.inputs[i].tolist()
            assert (row.op, row.shape, row.params) == (node.op, node.shape, node.params)
            assert row.shapes == tuple(plan.nodes[source].shape for source in node.inputs)
            assert flat.networks[i] == p
            assert reads == [first + source for source in node.inputs] + [NONE] * (len(reads) - len(node.inputs))
            assert flat.new[i].sum() == len(set(node.inputs))


def test_what_is_merged_does_not_refer_to_itself() -> None:
    """The garbage collector is off while populations run."""
    space, rng = spaces["nb201"], Random(0)
    merged = merge([space.plan(space.sample(rng), 10, SHAPE) for _ in range(2)])
    variant = merged.plan.with_statistics("running")
    assert merged.members and variant.layer_weights and merged.plan.without_norms.last_uses
    left = [weakref.ref(one) for one in (merged, merged.plan, variant)]
    gc.disable()
    try:
        del merged, variant
        assert [ref() for ref in left] == [None] * 3
    finally:
        gc.enable()
