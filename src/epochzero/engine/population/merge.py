"""Merging of many networks into one plan, which runs them as a population.

The maps of P networks are joined along the first axis of a sample, [B, P*C, H, W]. Nodes of equal op and equal input
shapes become one node: P convolutions are one with P times the groups, P batch norms are one over all channels. A
`GatherSum` collects the maps that a node needs, unless they are together already.

Networks with the same skeleton are merged block by block, so that a cell that is repeated five times is merged once;
others are merged node by node (`epochzero.engine.population.node_merge`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from epochzero.engine.population.grouped_kernels import with_kernels
from epochzero.engine.population.merged import Members, Merged, Pack, Packs, resized
from epochzero.engine.population.node_merge import merged_nodes
from epochzero.plan.builder import Builder
from epochzero.plan.ops.wiring import Input
from epochzero.plan.plan import Node, Place, Plan
from epochzero.types import Shape

LONGEST = 1 << 32
"""more than the number of nodes of any block"""


def mergeable(plan: Plan) -> bool:
    """Returns True for a plan with one input and one output that uses each of its parameters once."""
    return len(plan.input_shapes) == 1 and plan.auxiliary is None and not plan.shares


def merge(plans: Sequence[Plan]) -> Merged:
    """Merges plans into one; ValueError unless their input and output shapes are the same."""
    skeleton = plans[0].skeleton
    if any(plan.skeleton.ends != skeleton.ends for plan in plans):
        raise ValueError("the networks of a population need the same input shapes and the same output shapes")
    if not all(plan.skeleton.is_like(skeleton) for plan in plans):
        return merged_nodes(tuple(plans))
    net = Builder()
    packs: Packs = {}
    maps: dict[str, int] = {}
    known: dict[tuple[Plan, ...], Merged] = {}
    inlined: list[tuple[int, str, Merged]] = []
    place: list[int] = []
    parts = zip(*(plan.parts for plan in plans), strict=True)
    for at, piece in enumerate(skeleton.pieces):
        if not piece.inputs:
            place.append(net.input((len(plans) * piece.shape[0], *piece.shape[1:]), name=piece.name))
            continue
        given = [skeleton.pieces[source].shape for source in piece.inputs]
        alike = next(parts) if isinstance(piece, Place) else (_block(piece, given),) * len(plans)
        if alike not in known:
            repeated = (resized(alike, other, merged) for other, merged in known.items())
            known[alike] = next((merged for merged in repeated if merged is not None), None) or merged_nodes(alike)
        block, name = known[alike], piece.name
        place.append(net.inline(block.plan, *(place[source] for source in piece.inputs), name=name))
        inside = f"{name}." if isinstance(piece, Place) else ""
        packs |= {f"{name}.{param}": Pack(pack.networks, pack.names, inside) for param, pack in block.packs.items()}
        maps |= {f"{name}.{node}": count for node, count in block.maps.items()}
        inlined.append((at, name, block))

    def members() -> dict[str, Members]:
        return {
            f"{name}.{node}": members._replace(orders=members.orders + at * LONGEST)
            for at, name, block in inlined
            for node, members in block.members.items()
        }

    blocks = tuple(piece.name for piece in skeleton.places)
    named = tuple([(name, block) for _, name, block in inlined])
    return Merged(net.plan(), len(plans), packs, members, maps, blocks, named)


def of_one(plan: Plan) -> Merged:
    """Returns the plan of a single network as a merged one: its nodes, with convolutions that choose how to run."""
    nodes = tuple([node._replace(op=with_kernels(node.op, 1, common=False)) for node in plan.nodes])
    packs = {name: Pack((0,), (name,)) for name in plan.weights}
    one = np.zeros(1, np.int64)

    def members() -> dict[str, Members]:
        return {node.name: Members(one, one + i, one) for i, node in enumerate(nodes) if node.op.kind}

    maps = dict.fromkeys([node.name for node in nodes], 1)
    blocks = tuple([place.name for place in plan.skeleton.places])
    return Merged(Plan.of(nodes, plan.flops, plan.weights), 1, packs, members, maps, blocks)


def _block(node: Node, given: Sequence[Shape]) -> Plan:
    """Returns a node as a plan of its own."""
    inputs = [Node(Input(shape), (), f"input{i}", shape, ()) for i, shape in enumerate(given)]
    return Plan.of((*inputs, node._replace(inputs=tuple(range(len(given))))), 0, {})
