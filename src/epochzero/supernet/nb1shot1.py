"""NAS-Bench-1Shot1 as one network, as in its authors' code: each vertex has all three operations.

A vertex applies its operation to the weighted sum of earlier vertices, as many as the space gives it sources; the input
has its own 1x1 convolution, batch norm and ReLU. The output concatenates all vertices, multiplied by their weights, and
adds the weighted, projected input. All vertices of a cell have the same width, 16 channels in the first stage and twice
as many after each halving by max pooling; there are three stages of three cells.
"""

from __future__ import annotations

from functools import lru_cache, partial

from epochzero.plan import Builder, Plan, chain
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.mixture import Scaled
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.ops.pool import MaxPool
from epochzero.plan.ops.wiring import Add, Concat
from epochzero.spaces.nb1shot1 import NB1Shot1
from epochzero.spaces.nb101 import skeleton
from epochzero.spaces.nb101_cell import CELLS, OPS, Cell
from epochzero.spaces.nb201 import check_task
from epochzero.supernet.relaxed import MIXTURE, Choice, Picks, Relaxed, mix, relax
from epochzero.types import Shape

NORM, RELU, POOL = BatchNorm(), ReLU(), MaxPool(3, 1, padding=1)


@relax.register
def _relaxed(space: NB1Shot1, num_classes: int, input_shape: Shape, channels: int, cells: int) -> Relaxed:
    check_task(space.name, num_classes, input_shape)
    choices = _choices(space.degrees)
    vectors = {choice.name: len(choice.options) for choice in choices}
    stem = _conv(channels, 3, input_shape)
    plan = skeleton(stem, partial(_cell, choices), num_classes, input_shape, cells or CELLS, vectors)

    def decoded(picks: Picks) -> Cell:
        vertices = range(1, len(space.degrees) + 1)
        sources = tuple(tuple(sorted(picks[f"from{vertex}"])) for vertex in vertices)
        return Cell(tuple(OPS[picks[f"op{vertex}"][0]] for vertex in vertices[:-1]), sources)

    return Relaxed(plan, choices, decoded)


def _choices(degrees: tuple[int, ...]) -> tuple[Choice, ...]:
    """The operations of the vertices, then the sources of the vertices and, last, of the output."""
    ops = [Choice(f"op{vertex}", OPS) for vertex in range(1, len(degrees))]
    sources = [
        Choice(f"from{vertex}", tuple(map(str, range(vertex))), draws=degree, picks=degree)
        for vertex, degree in enumerate(degrees, start=1)
    ]
    return (*ops, *sources)


@lru_cache(maxsize=256)
def _conv(width: int, kernel: int, shape: Shape) -> Plan:
    return chain(shape, conv=Conv(width, kernel, padding=kernel // 2), norm=NORM, relu=RELU)


@lru_cache(maxsize=64)
def _cell(choices: tuple[Choice, ...], width: int, shape: Shape) -> Plan:
    net = Builder()
    x = net.input(shape)
    weights = {choice.name: net.input((len(choice.options),), choice.name) for choice in choices}
    output = len(choices) // 2 + 1
    values: list[int] = []
    for vertex in range(1, output):
        projected = net.inline(_conv(width, 1, shape), x, name=f"project{vertex}")
        total = net.add(MIXTURE, weights[f"from{vertex}"], projected, *values, name=f"sum{vertex}")
        inner = net.shape(total)
        blocks = dict(zip(OPS, (_conv(width, 3, inner), _conv(width, 1, inner), chain(inner, pool=POOL)), strict=True))
        values.append(mix(net, blocks, total, weights[f"op{vertex}"], f"vertex{vertex}"))
    last = weights[f"from{output}"]
    scaled = [net.add(Scaled(i), last, value, name=f"scaled{i}") for i, value in enumerate(values, start=1)]
    joined = net.add(Concat(), *scaled, name="join")
    projected = net.inline(_conv(width * len(values), 1, shape), x, name="project_output")
    net.add(Add(), joined, net.add(Scaled(0), last, projected, name="scaled0"), name="sum_output")
    return net.plan()
