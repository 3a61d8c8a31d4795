"""NAS-Bench-201 as one network: each edge of the cell holds all five operations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

from epochzero.plan import Builder, Plan
from epochzero.spaces.nb201 import CELLS, EDGES, NB201, OPS, SUM, Block, Cell, cell, check_task, edge, skeleton
from epochzero.supernet.relaxed import Choice, Relaxed, Supernet, Weights, mix, relax, supernet
from epochzero.types import Shape

NAMES = tuple(f"edge{to}{source}" for to, source in EDGES)
STAGES = 3
CELL = "cell"


@relax.register
def _relaxed(space: NB201, num_classes: int, input_shape: Shape, channels: int, cells: int) -> Relaxed:
    check_task(space.name, num_classes, input_shape)
    plan = _network(partial(_mixed_cell, None), num_classes, input_shape, channels, cells, NAMES)
    choices = tuple(Choice(name, OPS) for name in NAMES)
    return Relaxed(plan, choices, lambda picks: tuple(OPS[picks[name][0]] for name in NAMES))


@supernet.register
def _supernet(space: NB201, num_classes: int, input_shape: Shape, channels: int, cells: int) -> Supernet:
    check_task(space.name, num_classes, input_shape)
    network = partial(_network, num_classes=num_classes, input_shape=input_shape, channels=channels, cells=cells)

    def weighted(weights: Weights) -> Plan:
        return network(partial(_mixed_cell, tuple(weights[name] for name in NAMES)))

    def alone(arch: Cell) -> Plan:
        return network(lambda width, shape: cell(arch, width, 1, shape))

    return Supernet(
        OPS, {CELL: NAMES}, {CELL: ()}, weighted, lambda decided: tuple(decided[name] for name in NAMES), alone
    )


def _network(
    block: Block, num_classes: int, input_shape: Shape, channels: int, cells: int, vectors: Sequence[str] = ()
) -> Plan:
    widths = [channels * 2**stage for stage in range(STAGES)]
    return skeleton(block, num_classes, input_shape, widths, cells or CELLS, vectors)


@lru_cache(maxsize=256)
def _mixed_cell(weights: tuple[tuple[float, ...], ...] | None, width: int, shape: Shape) -> Plan:
    """The cell with these weights on each edge; None makes them inputs."""
    net = Builder()
    nodes = [net.input(shape)]
    given: Sequence[int | tuple[float, ...]] = weights or [net.input((len(OPS),), name) for name in NAMES]
    arriving: list[int] = []
    for (to, source), name, of_edge in zip(EDGES, NAMES, given, strict=True):
        blocks = {op: edge(op, width, 1, shape) for op in OPS}
        arriving.append(mix(net, blocks, nodes[source], of_edge, name))
        if len(arriving) == to:
            nodes.append(net.add(SUM, *arriving, name=f"node{to}"))
            arriving = []
    return net.plan()
