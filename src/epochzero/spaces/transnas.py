r"""TransNAS-Bench-101: a space of cells and a space of skeletons, each with one head per task.

    64-41414-a_bc_def     micro: the skeleton 41414 and one cell, the digits of the edges of nodes 1, 2 and 3
    64-1234-basic         macro: a skeleton of 4 to 6 modules of residual blocks

A stem of two convolutions of stride 2 has 64 output channels; then come the modules, two blocks each, whose first block
    1 keeps the size,    2 doubles the channels,    3 halves the resolution,    4 does both.
The cell has the nodes and edges of NAS-Bench-201 and on each edge
    0 none,    1 skip,    2 convolution 1x1,    3 convolution 3x3,
where a skip from the input of a cell that changes the size is a factorized reduction. The block of a macro network is
two convolutions with a skip connection, which is a 1x1 convolution with batch norm if the size changes.

There are 4^6 = 4,096 cells. A macro network halves the resolution in 1 to 4 modules and doubles the channels in 1 to 3:
sum over n = 4, 5, 6 modules of (C(n,1) + ... + C(n,4)) (C(n,1) + C(n,2) + C(n,3)) = 210 + 750 + 2,296 = 3,256.

Heads, by task: `object` (75 classes) and `scene` (47) pool over space and classify; `jigsaw` runs nine tiles through
the same backbone and classifies their order, one of 1,000, from all features. NASLib has 100 and 63 classes
instead; give `num_classes` for those.

Duan, Chen, Xu, Chen, Liang, Zhang, Li. TransNAS-Bench-101: improving transferability and generalizability of cross-task
neural architecture search. CVPR 2021. arXiv:2105.11871
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import lru_cache
from random import Random
from typing import NamedTuple

from epochzero.data.batch import shape_text
from epochzero.errors import UserError
from epochzero.plan import Builder, Plan, chain
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.wiring import Concat, Pick, Tiles
from epochzero.registry import spaces
from epochzero.spaces.base import Architectures, check_classes, pooled_classifier, quoted
from epochzero.spaces.budget import Cost
from epochzero.spaces.nb201 import EDGES, NORM, OPS, RELU, SUM, Cell, cell, conv
from epochzero.spaces.product import Product
from epochzero.types import Shape

WIDTH = 64
"""channels after the stem"""
BLOCKS = 2
"""blocks in each module"""
DOUBLES, HALVES = (2, 4), (3, 4)
"""the modules that double the channels, and those that halve the resolution"""
LIMITS = ("double the channels", DOUBLES, 3), ("halve the resolution", HALVES, 4)
"""the most modules of each kind in a macro network, which has at least one of each"""
MICRO_MODULES = (4, 1, 4, 1, 4)
GRID = 3
"""the jigsaw has 3 x 3 tiles"""
INPUT = -1
"""number of the input, next to the edges 0 to 5, in the terms of a cell"""

Modules = tuple[int, ...]
"""The digits of a skeleton."""


class Task(NamedTuple):
    """Classes and input of a task."""

    num_classes: int
    input_shape: Shape


TASKS = {"object": Task(75, (3, 256, 256)), "scene": Task(47, (3, 256, 256)), "jigsaw": Task(1000, (9, 3, 64, 64))}


class TransNAS:
    """The base of both spaces: a task, with its head."""

    def __init__(self, name: str, task: str = "object") -> None:
        self.name = name
        self.task = task

    @property
    def about(self) -> str:
        return f"TransNAS-Bench-101, {self.task}: {(type(self).__doc__ or '').split('.')[0]}"

    def _network(self, modules: Modules, arch: Cell | None, classes: int | None, shape: Shape | None) -> Plan:
        usual = TASKS[self.task]
        shape = usual.input_shape if shape is None else shape
        classes = usual.num_classes if classes is None else classes
        check_classes(self.name, classes)
        net = Builder()
        x = net.input(shape)
        if self.task == "jigsaw":
            seen = []
            for i, tile in enumerate(self._tiles(net, x)):
                block = backbone(modules, arch, net.shape(tile))
                name, shares = (f"backbone{i}", "backbone") if i else ("backbone", None)
                seen.append(net.inline(block, tile, name=name, shares=shares))
            x = net.add(Concat(), *seen, name="join")
        else:
            if len(shape) != 3:
                raise UserError(f"{self.name} takes images CxHxW, such as 3x256x256, not {shape_text(shape)}.")
            x = _lay(net, x, modules, arch)
        net.inline(pooled_classifier(classes, net.shape(x)), x, name="head")
        return net.plan()

    def _tiles(self, net: Builder, x: int) -> list[int]:
        """Adds the nine tiles, given as input or cut out of an image."""
        shape, count = net.shape(x), GRID**2
        cut = len(shape) == 3 and not shape[1] % GRID and not shape[2] % GRID
        if not cut and (len(shape) != 4 or shape[0] != count):
            raise UserError(
                f"{self.name} takes nine tiles 9xCxHxW, such as 9x3x64x64, or images CxHxW with H and W multiples of 3 "
                f"that it cuts into nine, not {shape_text(shape)}."
            )
        tiles = net.add(Tiles(GRID), x, name="tiles") if cut else x
        return [net.add(Pick(i), tiles, name=f"tile{i}") for i in range(count)]


class TransNASMicro(TransNAS, Product[str]):
    """One cell of four nodes and six edges, repeated. An architecture is a cell of nb201 without pooling."""

    choices = OPS[:4]
    """operations by digit"""
    places = len(EDGES)

    def parse(self, text: str) -> Cell:
        """Returns the architecture of a string such as `64-41414-1_02_333`."""
        match = re.fullmatch(r"64-41414-([0-3])_([0-3]{2})_([0-3]{3})", text.strip())
        if match is None:
            raise UserError(
                f"{quoted(text)} is not a {self.name} string: it should read 64-41414-a_bc_def, with digits 0 to 3, "
                "such as 64-41414-1_02_333."
            )
        return tuple(self.choices[int(digit)] for digit in "".join(match.groups()))

    def text(self, arch: Cell) -> str:
        a, b, c, d, e, f = (self.choices.index(op) for op in arch)
        return f"64-41414-{a}_{b}{c}_{d}{e}{f}"

    def key(self, arch: Cell) -> str:
        """Returns a string that two cells share exactly if they compute the same function of the same weights.

        A node is a sum of terms, and a term is an operation with its own weights on such a sum: the network's input, or
        terms of an earlier node. A skip from a later node passes on that node's terms; a skip from the input is an
        operation like the others, since it has weights in cells that halve the resolution. A node without inputs is
        zero, and so is a convolution of it, until training changes its norm.
        """
        sums, terms = [[INPUT], [], [], []], {}
        for edge, ((to, source), op) in enumerate(zip(EDGES, arch, strict=True)):
            if op == "skip_connect" and source:
                sums[to] += sums[source]
            elif op != "none" and sums[source]:
                terms[edge] = self.choices.index(op), sums[source]
                sums[to].append(edge)
        return _canonical(terms, sums[3])

    @property
    def cell_block(self) -> str:
        """The first cell that keeps the size."""
        return "backbone.cell1" if self.task == "jigsaw" else "cell1"

    def plan(self, arch: Cell, num_classes: int | None = None, input_shape: Shape | None = None) -> Plan:
        """Returns the network of a cell, by default with the classes and the input of the task."""
        return self._network(MICRO_MODULES, arch, num_classes, input_shape)


class TransNASMacro(TransNAS, Architectures):
    """Skeletons of four to six modules, which may halve the resolution and double the channels."""

    def parse(self, text: str) -> Modules:
        """Returns the architecture of a string such as `64-1234-basic`."""
        match = re.fullmatch(r"64-([1-4]{4,6})-basic", text.strip())
        if match is None:
            raise UserError(
                f"{quoted(text)} is not a {self.name} string: it should read 64-<4 to 6 digits from 1 to 4>-basic, "
                "such as 64-1234-basic."
            )
        modules = tuple(map(int, match[1]))
        for what, digits, most in LIMITS:
            count = sum(digit in digits for digit in modules)
            if not 1 <= count <= most:
                raise UserError(
                    f"{count} modules of {quoted(text)} {what} (digits {digits[0]} and {digits[1]}); "
                    f"in {self.name} 1 to {most} do."
                )
        return modules

    def text(self, arch: Modules) -> str:
        return f"64-{''.join(map(str, arch))}-basic"

    def count(self) -> int:
        return len(_skeletons())

    def __iter__(self) -> Iterator[Modules]:
        return iter(_skeletons())

    def sample(self, rng: Random) -> Modules:
        return rng.choice(_skeletons())

    def neighbours(self, arch: Modules) -> list[Modules]:
        """Returns every architecture with one module changed, added or removed."""
        others: dict[Modules, None] = {}
        for i in range(len(arch) + 1):
            for middle in ((), *((digit,) for digit in range(1, 5))):
                for rest in (arch[i:], arch[i + 1 :]):
                    others[(*arch[:i], *middle, *rest)] = None
        return [other for other in others if other != arch and _valid(other)]

    def smallest(self) -> Modules:
        """Returns the architecture with the fewest multiply-accumulates and almost the fewest parameters."""
        return (3, 3, 3, 4)

    def least(self, cost: Cost, num_classes: int | None = None, input_shape: Shape | None = None) -> Modules:
        """Returns the architecture with the fewest parameters, or multiply-accumulates: at usual sizes they differ.

        Each halving costs the weights of a projection; early halvings save computation until the map is tiny.
        """
        return (1, 1, 1, 4) if cost == "params" else _lightest(self, num_classes, input_shape)

    @property
    def cell_block(self) -> str:
        """The whole network; for the jigsaw, one backbone."""
        return "backbone" if self.task == "jigsaw" else ""

    def plan(self, arch: Modules, num_classes: int | None = None, input_shape: Shape | None = None) -> Plan:
        return self._network(arch, None, num_classes, input_shape)


def _canonical(terms: dict[int, tuple[int, list[int]]], output: list[int]) -> str:
    """Returns a sum of terms as text, independent of their numbers: the first text of all numberings of equal terms."""

    def look(term: int) -> str:
        return "x" if term == INPUT else f"{terms[term][0]}({'+'.join(sorted(map(look, terms[term][1])))})"

    used, waiting = set(), list(output)
    while waiting:
        used.update(waiting)
        waiting = [below for term in waiting if term != INPUT for below in terms[term][1]]
    alike = [list(group) for _, group in itertools.groupby(sorted(used - {INPUT}, key=look), key=look)]
    forms = []
    for orders in itertools.product(*map(itertools.permutations, alike)):
        order = [INPUT, *itertools.chain(*orders)]
        sums = [(terms[term][0], terms[term][1]) for term in order[1:]] + [("", output)]
        forms.append(" ".join(f"{op}({'+'.join(map(str, sorted(map(order.index, below))))})" for op, below in sums))
    return min(forms)


def _valid(modules: Modules) -> bool:
    counts = ((sum(digit in digits for digit in modules), most) for _, digits, most in LIMITS)
    return 4 <= len(modules) <= 6 and all(1 <= count <= most for count, most in counts)


@lru_cache(maxsize=1)
def _skeletons() -> tuple[Modules, ...]:
    products = (itertools.product(range(1, 5), repeat=length) for length in (4, 5, 6))
    return tuple(filter(_valid, itertools.chain.from_iterable(products)))


@lru_cache(maxsize=64)
def _lightest(space: TransNASMacro, num_classes: int | None, shape: Shape | None) -> Modules:
    """Searches skeletons of four modules, since any longer one can drop or join two of them and do less."""
    short = (modules for modules in _skeletons() if len(modules) == 4)
    return min(short, key=lambda modules: space.plan(modules, num_classes, shape).flops)


@lru_cache(maxsize=1024)
def backbone(modules: Modules, arch: Cell | None, shape: Shape) -> Plan:
    """The network without a head: any skeleton, with a cell or, without one, with residual blocks."""
    net = Builder()
    _lay(net, net.input(shape), modules, arch)
    return net.plan()


def _lay(net: Builder, x: int, modules: Modules, arch: Cell | None) -> int:
    """Adds stem and modules in order, and returns the last node."""
    x = net.inline(_stem(net.shape(x)), x, name="stem")
    for i, digit in enumerate(modules):
        width = net.shape(x)[0] * (2 if digit in DOUBLES else 1)
        for j in range(BLOCKS):
            size = width, 2 if digit in HALVES and j == 0 else 1, net.shape(x)
            x = net.inline(cell(arch, *size) if arch else _basic(*size), x, name=f"cell{BLOCKS * i + j}")
    return x


@lru_cache(maxsize=256)
def _stem(shape: Shape) -> Plan:
    first, second = Conv(WIDTH // 2, 3, 2, padding=1), Conv(WIDTH, 3, 2, padding=1)
    return chain(shape, conv1=first, norm1=NORM, relu=RELU, conv2=second, norm2=NORM)


@lru_cache(maxsize=1024)
def _basic(width: int, stride: int, shape: Shape) -> Plan:
    """Two convolutions with a skip connection, a 1x1 convolution if the size changes."""
    net = Builder()
    x = net.input(shape)
    main = net.inline(conv(width, 3, stride, shape), x, name="conv1")
    main = net.inline(conv(width, 3, 1, net.shape(main)), main, name="conv2")
    if stride > 1 or width != shape[0]:
        x = net.inline(chain(shape, conv=Conv(width, 1, stride), norm=NORM), x, name="shortcut")
    net.add(SUM, x, main, name="sum")
    return net.plan()


for _task in TASKS:
    _suffix = "" if _task == "object" else f"_{_task}"
    spaces.register(f"transnas_micro{_suffix}", TransNASMicro(f"transnas_micro{_suffix}", _task))
    spaces.register(f"transnas_macro{_suffix}", TransNASMacro(f"transnas_macro{_suffix}", _task))
