r"""DARTS: two cells, a normal and a reduction one, stacked into networks for CIFAR and for ImageNet.

A cell reads the outputs of the two cells before it, each projected to its width by a 1x1 convolution. Each of its nodes
is the sum of two edges, each edge one of seven operations on an earlier node, and its output is the concatenation of
all nodes. A reduction cell halves the image: its edges from the inputs have stride 2.

    CIFAR       conv 3x3 to 3C channels, cells, pool, classifier
    ImageNet    three convs 3x3 of stride 2 to C/2, C, C channels, cells, pool, classifier

Of L cells, the cells L // 3 and 2L // 3 are reductions and double the width, which starts at C. `darts` has C = 36 and
L = 20, `darts_imagenet` 48 and 14, `darts_search` 16 and 8, `nb301` 32 and 8 (NAS-Bench-301), `nb301_naslib` the same
with NASLib's edges; `Darts(...)` takes any. An auxiliary tower on the last reduction cell is optional.

The searched space has four nodes, each with two different sources: 1,037,664,180 cells, squared. `parse` and `plan`
accept more: any number of nodes, any sources, cut edges, and the operations of NASNet and AmoebaNet.

Liu, Simonyan, Yang. DARTS: differentiable architecture search. ICLR 2019. arXiv:1806.09055
Zela, Siems, Zimmer, Lukasik, Keuper, Hutter. Surrogate NAS benchmarks: going beyond the limited search spaces of
tabular NAS benchmarks. ICLR 2022. arXiv:2008.09777
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations, product
from random import Random
from typing import NamedTuple

from epochzero.errors import UserError
from epochzero.plan import Builder, Plan, chain
from epochzero.plan.blocks import Called
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.ops.pool import AvgPool, GlobalAvgPool, MaxPool
from epochzero.plan.ops.wiring import Add, Concat, Identity, Zero
from epochzero.registry import spaces
from epochzero.spaces import genotypes
from epochzero.spaces.base import check_images, pooled_classifier
from epochzero.spaces.budget import Size
from epochzero.spaces.genotypes import OPS, SEARCHED, Cell, Edge, Genotype, canonical, in_order
from epochzero.spaces.nb201 import factorized
from epochzero.types import Shape

NODES = 4
ALL_NODES = tuple(range(2, NODES + 2))
RELU, SUM, JOIN, NORM, BARE_NORM = ReLU(), Add(), Concat(), BatchNorm(), BatchNorm(affine=False)


def reductions(cells: int) -> tuple[int, int]:
    """Returns the numbers of the reduction cells."""
    return cells // 3, 2 * cells // 3


@dataclass(frozen=True)
class Darts:
    """Networks of DARTS cells."""

    name: str
    channels: int
    cells: int
    imagenet: bool = False
    search_edges: bool = False
    """True for the edges of DARTS's search and of NASLib: norms without scale and shift, and one after each pool"""

    @property
    def cell_block(self) -> tuple[str, ...]:
        """A normal cell, if possible the second, since the first reads the stem twice, and a reduction cell."""
        normal = [i for i in range(self.cells) if i not in reductions(self.cells)][:2]
        reduction = Called(f"cell{reductions(self.cells)[0]}", "reduction cell")
        return (*(Called(f"cell{i}", "normal cell") for i in normal[-1:]), reduction)

    @property
    def about(self) -> str:
        edges = ", edges as during the search" if self.search_edges else ""
        skeleton = "ImageNet" if self.imagenet else "CIFAR"
        return f"DARTS: a normal and a reduction cell, {self.cells} in all, {self.channels} channels, {skeleton}{edges}"

    def __post_init__(self) -> None:
        if self.cells < 1 or self.channels < 1 or (self.imagenet and self.channels % 2):
            raise UserError(
                f"{self.name} cannot have {self.cells} cells of {self.channels} channels: at least one of each, "
                f"and for ImageNet an even number of channels."
            )

    def parse(self, text: str) -> Genotype:
        """Returns the cells of `Genotype(normal=...)`, of NASLib's compact form, or of a name such as DARTS_V2."""
        return genotypes.parse(text)

    def text(self, arch: Genotype) -> str:
        return arch.text

    def key(self, arch: Genotype) -> str:
        """Returns a text that architectures share if they differ only in the order of edges and the numbers of nodes.

        They are then the same network up to the order of output channels of its cells.
        """
        return Genotype(*canonical(*arch[:2]), *canonical(*arch[2:])).text

    def count(self) -> int:
        """Returns the number of searched architectures, regardless of the order of a node's edges."""
        return math.prod(math.comb(node, 2) * len(SEARCHED) ** 2 for node in ALL_NODES) ** 2

    def sample(self, rng: Random) -> Genotype:
        """Draws uniformly, with the edges of each node sorted by source."""
        return Genotype(_sampled(rng), ALL_NODES, _sampled(rng), ALL_NODES)

    def redraw(self, arch: Genotype, rng: Random) -> Genotype:
        """Redraws the edges of one node of one cell, uniformly."""
        field, node = rng.choice(("normal", "reduce")), rng.choice(ALL_NODES)
        return _replaced(arch, Change(field, 2 * node - 4, _sampled_node(node, rng)))

    def mutate(self, arch: Genotype, rng: Random) -> Genotype:
        """Changes the operation or the source of one edge, uniformly over the neighbours."""
        return _changed(arch, rng.choice(_changes(arch)))

    def crossover(self, one: Genotype, other: Genotype, rng: Random) -> Genotype:
        """Takes the two edges of each node of each cell from one of the two, uniformly."""

        def crossed(*cells: Cell) -> Cell:
            mates = map(in_order, cells)
            nodes = zip(*(zip(cell[::2], cell[1::2], strict=True) for cell in mates), strict=True)
            return tuple(edge for pair in nodes for edge in rng.choice(pair))

        normal, reduce = crossed(one.normal, other.normal), crossed(one.reduce, other.reduce)
        return one._replace(normal=normal, reduce=reduce)

    def neighbours(self, arch: Genotype) -> list[Genotype]:
        """Returns the architectures with another operation or source at one edge: 120 in the searched space.

        No edge gets the source of the other edge of its node, and the edges of each node are sorted.
        """
        return [_changed(arch, change) for change in _changes(arch)]

    def smallest(self) -> Genotype:
        """Returns an architecture of pools, which have no parameters."""
        pools = (("max_pool_3x3", 0), ("max_pool_3x3", 1)) * NODES
        return Genotype(pools, ALL_NODES, pools, ALL_NODES)

    def plan(
        self,
        arch: Genotype,
        num_classes: int | None = None,
        input_shape: Shape | None = None,
        auxiliary: bool = False,
    ) -> Plan:
        """Returns the network for images of any size, by default for CIFAR-10 or ImageNet."""
        if num_classes is None:
            num_classes = 1000 if self.imagenet else 10
        if input_shape is None:
            input_shape = (3, 224, 224) if self.imagenet else (3, 32, 32)
        check_images(self.name, num_classes, input_shape, "3x32x32")
        net = Builder()
        image = net.input(input_shape)
        if self.imagenet:
            before = net.inline(_stem0(self.channels, input_shape), image, name="stem0")
            last = net.inline(_stem1(self.channels, net.shape(before)), before, name="stem1")
        else:
            before = last = net.inline(stem_block(3 * self.channels, input_shape), image, name="stem")
        cells = (in_order(arch.normal), arch.normal_concat), (in_order(arch.reduce), arch.reduce_concat)
        width, tower, reduced = self.channels, None, self.imagenet
        for i in range(self.cells):
            reduces = i in reductions(self.cells)
            width *= 2 if reduces else 1
            shapes = net.shape(before), net.shape(last)
            cell = _cell(*cells[reduces], width, reduces, reduced, self.search_edges, *shapes)
            before, last, reduced = last, net.inline(cell, before, last, name=f"cell{i}"), reduces
            if auxiliary and i == reductions(self.cells)[-1]:
                tower = net.inline(self._tower(num_classes, net.shape(last)), last, name="auxiliary")
        net.inline(pooled_classifier(num_classes, net.shape(last)), last, name="head")
        return net.plan(tower)

    def size(self, arch: Genotype, num_classes: int, input_shape: Shape) -> Size:
        """Returns the plan's size without the plan: a network of cut edges plus the contribution of each edge."""
        added = _edge_sizes(self, input_shape)
        parts = [_frame_size(self, len(arch.normal_concat), len(arch.reduce_concat), num_classes, input_shape)]
        for field, cell in (("normal", arch.normal), ("reduce", arch.reduce)):
            parts += [added[field, op, min(source, 2)] for op, source in cell]
        return Size(sum([part.params for part in parts]), sum([part.flops for part in parts]))

    def _tower(self, num_classes: int, shape: Shape) -> Plan:
        least = 7 if self.imagenet else 8
        if min(shape[1:]) < least:
            raise UserError(
                f"The auxiliary tower of {self.name} needs maps of at least {least}x{least} after the last reduction "
                f"and gets {shape[1]}x{shape[2]}: give larger images, or leave the tower out."
            )
        return _tower(num_classes, self.imagenet, shape)


CUT = (("none", 0), ("none", 1))


@lru_cache(maxsize=256)
def _frame_size(space: Darts, normal: int, reduce: int, num_classes: int, shape: Shape) -> Size:
    """The size of a network without edges, whose cells have these numbers of output nodes."""
    cells = [(CUT * nodes, tuple(range(2, nodes + 2))) for nodes in (normal, reduce)]
    plan = space.plan(Genotype(*cells[0], *cells[1]), num_classes, shape)
    return Size(plan.params, plan.flops)


@lru_cache(maxsize=64)
def _edge_sizes(space: Darts, shape: Shape) -> dict[tuple[str, str, int], Size]:
    """The size that an edge adds in all cells of its kind, by operation and source; source 2 is any node."""
    cut, frame = Genotype(CUT * 2, (2, 3), CUT * 2, (2, 3)), _frame_size(space, 2, 2, 1, shape)
    sizes = {}
    for field, op, source in product(("normal", "reduce"), OPS, (0, 1, 2)):
        plan = space.plan(_changed(cut, Change(field, 2, ((op, source), CUT[1]))), 1, shape)
        sizes[field, op, source] = Size(plan.params - frame.params, plan.flops - frame.flops)
    return sizes


class Change(NamedTuple):
    """A node with new edges."""

    field: str
    """field of the genotype: normal or reduce"""
    at: int
    """position of its edges in the cell"""
    edges: Cell


def _sampled(rng: Random) -> Cell:
    return tuple([edge for node in ALL_NODES for edge in _sampled_node(node, rng)])


def _sampled_node(node: int, rng: Random) -> Cell:
    return tuple([(rng.choice(SEARCHED), source) for source in sorted(rng.sample(range(node), 2))])


def _changes(arch: Genotype) -> list[Change]:
    return [
        Change(field, at, edges)
        for field, cell in (("normal", arch.normal), ("reduce", arch.reduce))
        for at in range(0, len(cell), 2)
        for edges in _other_edges(at // 2 + 2, *cell[at : at + 2])
    ]


@lru_cache(maxsize=4096)
def _other_edges(node: int, *edges: Edge) -> tuple[Cell, ...]:
    """Returns the edges of a node with another operation or source for one of them."""
    changes: list[Cell] = []
    for (op, source), other in permutations(edges):
        changed = [(new, source) for new in SEARCHED if new != op]
        changed += [(op, new) for new in range(node) if new not in (source, other[1])]
        changes += [in_order((edge, other)) for edge in changed]
    return tuple(dict.fromkeys(changes))


def _changed(arch: Genotype, change: Change) -> Genotype:
    return _replaced(arch._replace(normal=in_order(arch.normal), reduce=in_order(arch.reduce)), change)


def _replaced(arch: Genotype, change: Change) -> Genotype:
    cell, at = getattr(arch, change.field), change.at
    return arch._replace(**{change.field: (*cell[:at], *change.edges, *cell[at + 2 :])})


def _strided(width: int) -> Conv:
    return Conv(width, 3, 2, padding=1)


@lru_cache(maxsize=256)
def stem_block(width: int, shape: Shape) -> Plan:
    return chain(shape, conv=Conv(width, 3, padding=1), norm=NORM)


@lru_cache(maxsize=256)
def _stem0(width: int, shape: Shape) -> Plan:
    return chain(shape, conv1=_strided(width // 2), norm1=NORM, relu=RELU, conv2=_strided(width), norm2=NORM)


@lru_cache(maxsize=256)
def _stem1(width: int, shape: Shape) -> Plan:
    return chain(shape, relu=RELU, conv=_strided(width), norm=NORM)


@lru_cache(maxsize=1024)
def _cell(
    cell: Cell,
    concat: tuple[int, ...],
    width: int,
    reduces: bool,
    reduced: bool,
    search_edges: bool,
    before: Shape,
    last: Shape,
) -> Plan:
    """A cell on the outputs of the two cells before it; if the last has `reduced`, the first is halved."""
    net = Builder()
    nodes = prepared(net, net.input(before, "before"), net.input(last, "last"), width, NORM, reduced)
    for edges in zip(cell[::2], cell[1::2], strict=True):
        to = len(nodes)
        names = [f"edge{to}_{source}" for _, source in edges]
        if names[0] == names[1]:
            names[1] += "b"
        terms = []
        for (op, source), name in zip(edges, names, strict=True):
            edge = edge_block(op, 2 if reduces and source < 2 else 1, search_edges, net.shape(nodes[source]))
            terms.append(net.inline(edge, nodes[source], name=name))
        nodes.append(net.add(SUM, *terms, name=f"node{to}"))
    net.add(JOIN, *[nodes[node] for node in concat], name="out")
    return net.plan()


@lru_cache(maxsize=256)
def projected(width: int, norm: BatchNorm, shape: Shape) -> Plan:
    return chain(shape, relu=RELU, conv=Conv(width, 1), norm=norm)


def halved(width: int, norm: BatchNorm, shape: Shape) -> Plan:
    return factorized(width, norm, ("conv1", "conv2"), shape)


def prepared(net: Builder, before: int, last: int, width: int, norm: BatchNorm, reduced: bool) -> list[int]:
    """Adds the first two nodes of a cell, its inputs at its width; halves the first if the last cell `reduced`."""
    first = (halved if reduced else projected)(width, norm, net.shape(before))
    second = projected(width, norm, net.shape(last))
    return [net.inline(first, before, name="pre0"), net.inline(second, last, name="pre1")]


@lru_cache(maxsize=1024)
def edge_block(op: str, stride: int, search_edges: bool, shape: Shape) -> Plan:
    width = shape[0]
    norm = BARE_NORM if search_edges else NORM
    match op:
        case "none":
            return chain(shape, zero=Zero(stride=stride))
        case "skip_connect":
            return halved(width, norm, shape) if stride > 1 else chain(shape, skip=Identity())
        case "max_pool_3x3" | "avg_pool_3x3":
            pool = (MaxPool if op.startswith("max") else AvgPool)(3, stride, padding=1)
            return chain(shape, pool=pool, norm=norm) if search_edges else chain(shape, pool=pool)
        case "conv_7x1_1x7":
            wide, tall = Conv(width, (1, 7), (1, stride), (0, 3)), Conv(width, (7, 1), (stride, 1), (3, 0))
            return chain(shape, relu=RELU, wide=wide, tall=tall, norm=norm)
    kernel, point = int(op[-1]), Conv(width, 1)
    if op.startswith("dil"):
        deep = Conv(width, kernel, stride, kernel - 1, dilation=2, groups=width)
        return chain(shape, relu=RELU, depth=deep, point=point, norm=norm)
    deep1, deep2 = (Conv(width, kernel, s, kernel // 2, groups=width) for s in (stride, 1))
    first = {"relu1": RELU, "depth1": deep1, "point1": point, "norm1": norm}
    return chain(shape, **first, relu2=RELU, depth2=deep2, point2=point, norm2=norm)


@lru_cache(maxsize=256)
def _tower(num_classes: int, imagenet: bool, shape: Shape) -> Plan:
    """The auxiliary classifier for training; ImageNet's has no norm after the last convolution."""
    ops = {"relu1": RELU, "pool": AvgPool(5, 2 if imagenet else 3), "conv1": Conv(128, 1), "norm1": NORM, "relu2": RELU}
    ops |= {"conv2": Conv(768, 2)} | ({} if imagenet else {"norm2": NORM})
    return chain(shape, **ops, relu3=RELU, mean=GlobalAvgPool(), linear=Linear(num_classes))


for _space in (
    Darts("darts", channels=36, cells=20),
    Darts("darts_imagenet", channels=48, cells=14, imagenet=True),
    Darts("darts_search", channels=16, cells=8),
    Darts("nb301", channels=32, cells=8),
    Darts("nb301_naslib", channels=32, cells=8, search_edges=True),
):
    spaces.register(_space.name, _space)
