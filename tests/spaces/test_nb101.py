"""NAS-Bench-101: its sizes, its hash and its 423,624 cells, a network written by hand, and uniform draws."""

from __future__ import annotations

import csv
import gzip
import os
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from itertools import chain, takewhile
from math import prod
from pathlib import Path
from random import Random

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from epochzero.errors import UserError
from epochzero.plan.execute import execute
from epochzero.plan.init import draw
from epochzero.registry import spaces
from epochzero.spaces import nb101
from epochzero.spaces.nb101 import NB101
from epochzero.spaces.nb101_cell import OPS, Cell, _orders, graph, pruned, topologies, twins
from epochzero.types import Origin
from tests.plan.test_codegen import assert_same

SPACE = spaces["nb101"]
NARROW = NB101(stem=16)
TABLE = Path(__file__).parents[2] / "../shared/data/nb101_15k.csv.gz"
INCEPTION = "conv1x1:0/conv3x3:0/conv3x3:0/conv3x3:3/maxpool3x3:0/output:1245"
UNEVEN = "conv3x3:0/conv1x1:01/maxpool3x3:1/conv3x3:2/output:0134"
"""three vertices share the output, so that widths differ by one and sources are cut"""
cells = st.integers(0, 10**9).map(lambda seed: SPACE.sample(Random(seed), "naslib"))


# Sizes


def test_a_narrow_space_is_another_space_of_the_same_cells() -> None:
    assert (SPACE.name, NARROW.name) == ("nb101", "nb101_stem16")
    assert NARROW.sample(Random(0)) == SPACE.sample(Random(0))
    assert NARROW.plan(NARROW.smallest()).params < SPACE.plan(SPACE.smallest()).params


@pytest.mark.parametrize("text", [INCEPTION, UNEVEN, "output:0"])
def test_multiply_accumulates_are_half_of_what_torch_counts(text: str) -> None:
    plan = NARROW.plan(NARROW.parse(text), num_classes=7, input_shape=(3, 8, 8))
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        plan.module().to("meta").eval()(torch.empty(1, 3, 8, 8, device="meta"))
    assert plan.flops == counter.get_total_flops() / 2


def test_nothing_is_smaller_than_the_smallest() -> None:
    """A pool weighs nothing, so the smallest cell has nothing else."""
    least = NARROW.plan(NARROW.smallest())
    for sources in Random(0).sample(topologies(), 300):
        plan = NARROW.plan(Cell(("maxpool3x3",) * (len(sources) - 1), sources))
        assert least.params <= plan.params and least.flops <= plan.flops


def test_sizes_and_hashes_in_the_table() -> None:
    """Its FLOPs are multiply-accumulates and two for each number that a norm gives.

    Where its parameters are not ours, they are those of a twin: the extra channel went to another vertex.
    """
    if not TABLE.is_file():
        pytest.skip("the table nb101_15k.csv.gz is not beside the repository")
    with gzip.open(TABLE, "rt", newline="") as file:
        rows = Random(0).sample(list(csv.DictReader(file)), 100)
    twinned = 0
    for row in rows:
        arch = SPACE.parse(f"{row['adjacency']} {row['ops']}")
        assert SPACE.key(arch) == row["hash"]
        sizes = {twin: SPACE.plan(twin).params for twin in twins(arch)}
        assert int(row["params"]) in sizes.values()
        if int(row["params"]) != sizes[arch]:
            twinned += 1
        elif len(set(sizes.values())) == 1:
            plan = SPACE.plan(arch)
            normed = sum(prod(node.shape) for node in plan.nodes if node.op.kind == "norm")
            assert float(row["flops"]) == plan.flops + 2 * normed
    assert twinned < 8


@pytest.mark.parametrize("shape", [(3, 32), (3, 30, 32), (3, 32, 6), (32,)])
def test_an_image_that_cannot_be_halved_twice_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match=r"multiples of 4.* not " + "x".join(map(str, shape))):
        SPACE.plan(SPACE.smallest(), input_shape=shape)


# The network


def by_hand(matrix: list[list[int]], ops: list[str], w: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """One cell with 17 channels, edge by edge from its matrix."""
    last = len(matrix) - 1
    joining = [v for v in range(1, last) if matrix[v][last]]

    def width(v: int) -> int:
        if v in joining:
            return len(range(joining.index(v), 17, len(joining)))
        return max(width(u) for u in range(v + 1, last) if matrix[v][u])

    def conv(x: Tensor, name: str) -> Tensor:
        weight = w[f"{name}.conv.weight"]
        x = F.conv2d(x, weight, padding=weight.shape[-1] // 2)
        x = (x - x.mean((0, 2, 3), keepdim=True)) / (x.var((0, 2, 3), keepdim=True, unbiased=False) + 1e-5).sqrt()
        return x.relu()

    values = [x]
    for v in range(1, last):
        terms = [values[u] for u in range(1, v) if matrix[u][v]]
        if matrix[0][v]:
            terms.append(conv(x, f"project{v}"))
        total = torch.stack([term[:, : width(v)] for term in terms]).sum(0)
        values.append(conv(total, f"vertex{v}") if "conv" in ops[v] else F.max_pool2d(total, 3, 1, 1))
    total = torch.cat([values[v] for v in joining], 1) if joining else torch.zeros(())
    return total + conv(x, "project_output") if matrix[0][last] else total


@settings(max_examples=15, deadline=None)
@given(cells)
def test_a_cell_computes_what_its_matrix_says(arch: Cell) -> None:
    plan = nb101._cell(arch, 17, (5, 6, 6))
    weights = draw(plan.weights, Origin())
    x = torch.randn(3, 5, 6, 6, generator=torch.Generator().manual_seed(0))
    matrix, ops = SPACE.matrix(arch)
    expected = by_hand(matrix, ops, weights, x)
    assert expected.shape == (3, 17, 6, 6)
    assert torch.allclose(execute(plan, weights, (x,)), expected, atol=1e-4)


def test_widths_by_hand() -> None:
    """17 channels for vertices 1, 3 and 4: 6, 6 and 5. Vertex 2 feeds 4 alone, and 1 loses a channel to fit it."""
    plan = nb101._cell(SPACE.parse(UNEVEN), 17, (5, 6, 6))
    shapes = {node.name: node.shape[0] for node in plan.nodes}
    assert [shapes[name] for name in ("vertex1.conv", "vertex2.conv", "vertex3", "vertex4.conv", "join")] == [
        6,
        5,
        6,
        5,
        17,
    ]
    assert shapes["cut12"] == 5 and "cut13" not in shapes
    assert shapes["project1.conv"] == 6 and shapes["project2.conv"] == 5 and shapes["project_output.conv"] == 17


@pytest.mark.parametrize("text", [INCEPTION, UNEVEN, "output:0", "maxpool3x3:0/conv3x3:0/conv1x1:12/output:03"])
def test_module_printed_code_and_engine_are_one_network(text: str) -> None:
    plan = NB101(stem=10).plan(NARROW.parse(text), input_shape=(3, 8, 8))
    assert_same(plan)
    weights = draw(plan.weights, Origin())
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    output = execute(plan, weights, (x,))
    assert output.isfinite().all() and output.std() > 1e-3
    assert torch.allclose(output, plan.module().train()(x), atol=1e-5)


# Cells


def test_every_cell_is_counted_once_without_listing_any() -> None:
    """Burnside's lemma for each wiring: 3^(cycles) summed over its symmetries, shared among its orders."""
    assert len(topologies()) == 6472
    assert round(sum(number_of_cells().values())) == SPACE.count() == 423_624


def number_of_cells() -> Counter[tuple[int, int]]:
    """Cells by how many vertices and edges they have."""
    found: Counter[tuple[int, int]] = Counter()
    for sources in topologies():
        orders = _orders(sources)
        same = [order for order, renamed in orders if renamed == sources]
        share = Fraction(sum(3 ** cycles(order) for order in same), len(orders))
        found[len(sources) + 1, sum(map(len, sources))] += share  # type: ignore[assignment]
    return found


def cycles(order: tuple[int, ...]) -> int:
    left, found = set(order), 0
    while left:
        at = left.pop()
        found += 1
        while (at := order[at - 1]) in left:
            left.remove(at)
    return found


def test_hash_and_orders_agree_on_small_cells() -> None:
    """The hash never looks at orders, nor the listing at the hash."""
    small = small_cells()
    hashes = {SPACE.key(arch) for arch in small}
    assert len(hashes) == len(small)
    for arch in small[::7]:
        assert {SPACE.key(twin) for twin in twins(arch)} == {SPACE.key(arch)}


def small_cells() -> list[Cell]:
    """Of every cell with at most five vertices, one order."""
    return list(takewhile(lambda arch: len(arch.sources) <= 4, SPACE))


@pytest.mark.skipif("EPOCHZERO_SLOW" not in os.environ, reason="takes two minutes: set EPOCHZERO_SLOW=1")
def test_all_423624_cells_have_different_hashes() -> None:
    everything = list(SPACE)
    assert len(everything) == len({SPACE.key(arch) for arch in everything}) == 423_624


def test_hashes_of_the_benchmark() -> None:
    text = "0100010;0010010;0001000;0000101;0000010;0000001;0000000 input,conv3x3-bn-relu,maxpool3x3,conv1x1-bn-relu,"
    assert SPACE.key(SPACE.parse(text + "maxpool3x3,conv1x1-bn-relu,output")) == "0000cb5372fad9d62c470df699ac6d52"


def test_idle_vertices_are_cut_off() -> None:
    """Vertex 2 leads nowhere, and nothing leads to vertex 3."""
    cell = Cell(("conv3x3", "conv1x1", "maxpool3x3", "conv1x1"), ((0,), (1,), (), (1, 3), (4,)))
    assert pruned(cell) == SPACE.parse("conv3x3:0/conv1x1:1/output:2") == SPACE.parse(SPACE.text(cell))
    assert pruned(Cell(("conv3x3",), ((0,), ()))) is None


# Text and other forms


@given(cells)
def test_text_and_cell_are_one_to_one(arch: Cell) -> None:
    assert SPACE.parse(SPACE.text(arch)) == arch
    assert SPACE.parse(f" {SPACE.text(arch)}\n") == arch


@given(cells)
def test_the_same_cell_in_other_forms(arch: Cell) -> None:
    matrix, ops = SPACE.matrix(arch)
    naslib = [["input", "output", "maxpool3x3", "conv1x1-bn-relu", "conv3x3-bn-relu"].index(op) for op in ops]
    rows = ";".join("".join(map(str, row)) for row in matrix)
    assert graph(matrix, ops) == arch
    assert SPACE.parse(f"{rows} {','.join(ops)}") == arch
    assert SPACE.parse(str((*chain.from_iterable(matrix), *naslib))) == arch


def test_naslib_text_of_seven_vertices() -> None:
    bits = "0111010 0000001 0000001 0000100 0000001 0000001 0000000".replace(" ", "")
    numbers = [*map(int, bits), 0, 3, 4, 4, 4, 2, 1]
    assert len(numbers) == 56
    assert SPACE.text(SPACE.parse(str(numbers))) == INCEPTION


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("conv3x3:0", "should be at most 5 operations and then output:sources"),
        ("conv3x3:0/" * 6 + "output:1", "should be at most 5 operations and then output:sources"),
        ("conv3x3:0/output", "^'output' should be written as operation:sources, .* nb101 joins these"),
        ("conv3x3:1/output:1", "sources of 'conv3x3:1' should be vertices before 1, each once, in order"),
        ("conv3x3:0/output:10", "sources of 'output:10' should be vertices before 2"),
        ("conv3x3:0/output:11", "each once"),
        ("conv3x3:0/output:²", "should be written as operation:sources"),
        ("conv3:0/output:1", "no operation 'conv3'. Did you mean 'conv3x3'"),
        ("conv3x3:0/output:", "No path leads from the input to the output of 'conv3x3:0/output:'"),
        ("conv3x3:0/conv3x3:01/conv3x3:012/conv3x3:0123/output:4", "at most 7 vertices and 9 edges; .* has 6 and 11"),
        ("01;00 input,output,output", "has 2 rows of 2 columns and 3 operations"),
        ("01;0 input,output", "has 2 rows of 1, 2 columns"),
        ("01;10 input,output", "ones only above the diagonal"),
        ("01;00 output,input", "begin with input and end with output, not output and input"),
        ("010;001;000 input,conv5x5,output", "no operation 'conv5x5'. Did you mean 'conv"),
        ("(0, 1, 0, 0, 0)", "56 for 7 vertices; these are 5"),
        ("|none~0|+|none~0|none~1|+|none~0|none~1|none~2|", "should be written as operation:sources"),
    ],
)
def test_text_that_is_no_cell(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        SPACE.parse(text)


def test_a_matrix_that_is_no_cell() -> None:
    with pytest.raises(UserError, match="zeros and ones"):
        graph([[0, 2], [0, 0]], ["input", "output"])
    with pytest.raises(UserError, match="no operation '3'"):
        graph([[0, 1, 0], [0, 0, 1], [0, 0, 0]], ["input", "3", "output"])
    with pytest.raises(UserError, match="0 rows of no columns"):
        graph([], [])


# Moves


def test_neighbours_by_hand() -> None:
    assert [SPACE.text(a) for a in SPACE.neighbours(SPACE.parse("output:0"))] == [f"{op}:0/output:01" for op in OPS]
    found = {SPACE.text(a) for a in SPACE.neighbours(SPACE.parse("conv3x3:0/output:01"))}
    assert found == {
        *("conv1x1:0/output:01", "maxpool3x3:0/output:01"),
        *("output:0", "conv3x3:0/output:1"),
        *(f"{op}:0/conv3x3:01/output:02" for op in OPS),
        *(f"{op}:0/conv3x3:0/output:012" for op in OPS),
        *(f"conv3x3:0/{op}:1/output:012" for op in OPS),
    }


@settings(max_examples=30, deadline=None)
@given(cells)
def test_neighbours_are_cells_and_differ(arch: Cell) -> None:
    neighbours = SPACE.neighbours(arch)
    assert len(set(neighbours)) == len(neighbours) >= 3
    assert arch not in neighbours
    assert all(SPACE.parse(SPACE.text(other)) == other for other in neighbours)
    assert SPACE.mutate(arch, Random(0)) in neighbours


def test_every_small_cell_can_be_reached() -> None:
    start = SPACE.parse("output:0")
    reached, waiting = {start}, [start]
    while waiting:
        for other in SPACE.neighbours(waiting.pop()):
            if len(other.sources) <= 3 and other not in reached:
                reached.add(other)
                waiting.append(other)
    tiny = {SPACE.key(arch) for arch in small_cells() if len(arch.sources) <= 3}
    assert {SPACE.key(arch) for arch in reached} == tiny


def test_mutation_is_uniform_over_the_neighbours() -> None:
    rng, arch = Random(1), SPACE.parse("conv3x3:0/output:01")
    children = Counter(SPACE.mutate(arch, rng) for _ in range(4000))
    assert set(children) == set(SPACE.neighbours(arch))
    assert chisquare(list(children.values())).pvalue > 1e-3


# Draws


def test_samples_are_uniform_over_the_cells_up_to_order() -> None:
    rng = Random(0)
    drawn = Counter((len(a.sources) + 1, a.edges) for a in (SPACE.sample(rng) for _ in range(4000)))
    of_all = number_of_cells()
    often = [size for size in of_all if of_all[size] * 4000 / SPACE.count() > 10]
    expected = [float(of_all[size]) * 4000 / SPACE.count() for size in often]
    rest = (4000 - sum(drawn[size] for size in often), 4000 - sum(expected))
    assert chisquare([drawn[size] for size in often] + [rest[0]], [*expected, rest[1]]).pvalue > 1e-3


def test_samples_of_small_cells_are_uniform_over_every_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the cells with at most four vertices, 13 wirings, those with one order and those with two alike."""
    small = tuple(sources for sources in topologies() if len(sources) <= 3)
    totals = [sum(3 ** (len(sources) - 1) for sources in small[: i + 1]) for i in range(len(small))]
    monkeypatch.setattr(nb101, "topologies", lambda: small)
    monkeypatch.setattr(nb101, "weights", lambda: totals)
    rng = Random(2)
    drawn = Counter(SPACE.key(SPACE.sample(rng)) for _ in range(8000))
    assert len(small) == 13
    assert set(drawn) == {SPACE.key(arch) for arch in SPACE}
    assert len(drawn) < totals[-1]
    assert chisquare(list(drawn.values())).pvalue > 1e-3


def test_naslib_draws_every_edge_with_one_half() -> None:
    """The same rule in other words: a random matrix is kept if its powers show a path and few edges lie on one."""
    rng, noise = Random(3), torch.Generator().manual_seed(0)
    ours = Counter(len(SPACE.sample(rng, "naslib").sources) + 1 for _ in range(3000))
    matrix = torch.randint(0, 2, (60_000, 7, 7), generator=noise).triu(1).float()
    reach = torch.linalg.matrix_power(matrix + torch.eye(7), 7) > 0
    on_path = reach[:, 0] & reach[:, :, 6]  # [N, 7]
    edges = (matrix * on_path[:, :, None] * on_path[:, None]).sum((1, 2))
    sizes = on_path.sum(1)[reach[:, 0, 6] & (edges <= 9)]
    expected = [float((sizes == v).sum()) for v in range(2, 8)]
    scale = 3000 / sum(expected)
    assert chisquare([ours[v] for v in range(2, 8)], [e * scale for e in expected]).pvalue > 1e-3
