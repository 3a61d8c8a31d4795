"""NAS-Bench-201 as one network: each edge of the cell holds all five operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

from epochzero.plan import Builder, Plan
from epochzero.spaces.nb201 import CELLS, EDGES, NB201, OPS, SUM, Cell, check_task, edge, head, reduction, stem
from epochzero.spaces.nb201 import cell as cell_of
from epochzero.supernet.relaxed import Choice, Relaxed, Supernet, Usual, Weights, mix, relax, supernet, usual
from epochzero.types import Shape

NAMES = tuple(f"edge{to}{source}" for to, source in EDGES)
STAGES = 3
CELL = "cell"

Block = Callable[[int, Shape], Plan]
"""Makes the cell of a width for an input of a shape."""


@relax.register
def _relaxed(space: NB201, num_classes: int, input_shape: Shape, channels: int, cells: int) -> Relaxed:
    check_task(space.name, num_classes, input_shape)
    plan = _network(partial(_mixed_cell, None), len(NAMES), num_classes, input_shape, channels, cells)
    choices = tuple(Choice(name, OPS) for name in NAMES)
    return Relaxed(plan, choices, lambda picks: tuple(OPS[picks[name][0]] for name in NAMES))


@usual.register
def _usual(space: NB201) -> Usual:
    """The best measured settings (docs/results.md, "Searches of NAS-Bench-201"); the paper states none."""
    return Usual(steps=200, nu="adaptive", without="none", cells=1)


@supernet.register
def _supernet(space: NB201, num_classes: int, input_shape: Shape, channels: int, cells: int) -> Supernet:
    check_task(space.name, num_classes, input_shape)
    network = partial(_network, num_classes=num_classes, input_shape=input_shape, channels=channels, cells=cells)

    def weighted(weights: Weights) -> Plan:
        return network(partial(_mixed_cell, tuple(weights[name] for name in NAMES)), 0)

    def alone(arch: Cell) -> Plan:
        return network(lambda width, shape: cell_of(arch, width, 1, shape), 0)

    return Supernet(
        OPS, {CELL: NAMES}, {CELL: ()}, weighted, lambda decided: tuple(decided[name] for name in NAMES), alone
    )


def _network(
    block: Block, choices: int, num_classes: int, input_shape: Shape, channels: int = 16, cells: int = 0
) -> Plan:
    """The skeleton of the space with any cell, which may read vectors of weights in addition to its map."""
    net = Builder()
    image = net.input(input_shape)
    weights = [net.input((len(OPS),), name) for name in NAMES[:choices]]
    x = net.inline(stem(channels, input_shape), image, name="stem")
    each = cells or CELLS
    for stage in range(STAGES):
        width = channels * 2**stage
        if stage:
            x = net.inline(reduction(width, net.shape(x)), x, name=f"reduce{stage}")
        repeated = block(width, net.shape(x))
        for i in range(each):
            x = net.inline(repeated, x, *weights, name=f"cell{stage * each + i}")
    net.inline(head(num_classes, net.shape(x)), x, name="head")
    return net.plan()


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
