"""DARTS networks: published sizes, a network written out by hand, uniform draws."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from itertools import combinations
from random import Random
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from epochzero.errors import UserError
from epochzero.plan.execute import execute
from epochzero.plan.init import draw
from epochzero.registry import spaces
from epochzero.spaces.budget import Budget, BudgetedSpace, Size
from epochzero.spaces.darts import Darts
from epochzero.spaces.genotypes import GENOTYPES, OPS, SEARCHED, Genotype
from epochzero.testing import check_space
from epochzero.testing.spaces import check_plan
from epochzero.types import Origin, Shape

SPACE = spaces["darts"]
SMALL, SMALL_IMAGENET = Darts("small", 4, 4), Darts("small", 4, 4, imagenet=True)
NASLIB = Darts("small", 4, 4, search_edges=True)
EVERY_OP = Genotype(
    tuple((op, i % 2) for i, op in enumerate(OPS)),
    (2, 3, 4, 5, 6),
    tuple((op, i % 2) for i, op in enumerate(OPS)),
    (6, 3),
)
archs = st.integers(0, 2**32).map(lambda seed: SPACE.sample(Random(seed)))


# Sizes


@pytest.mark.parametrize(
    ("space", "settings"), [("darts", {}), ("darts", {"num_classes": 100}), ("darts_imagenet", {})]
)
def test_the_trunk_is_the_network_without_its_tower(space: str, settings: dict[str, int]) -> None:
    plan = spaces[space].plan(GENOTYPES["DARTS_V2"], **settings, auxiliary=True)
    assert plan.trunk.params == spaces[space].plan(GENOTYPES["DARTS_V2"], **settings).params < plan.params


def test_what_an_edge_costs() -> None:
    """On one normal cell of width w: two depthwise k x k and 1x1 convolutions with norms, or one with one norm."""
    one = Darts("three", 8, 3)
    base = one.smallest()
    cell = base.normal
    for op, expected in {
        "none": 0,
        "max_pool_3x3": 0,
        "avg_pool_3x3": 0,
        "skip_connect": 0,
        "sep_conv_3x3": 2 * (9 * 8 + 64 + 16),
        "sep_conv_5x5": 2 * (25 * 8 + 64 + 16),
        "sep_conv_7x7": 2 * (49 * 8 + 64 + 16),
        "dil_conv_3x3": 9 * 8 + 64 + 16,
        "dil_conv_5x5": 25 * 8 + 64 + 16,
        "conv_7x1_1x7": 2 * 7 * 64 + 16,
    }.items():
        changed = base._replace(normal=((op, 0), *cell[1:]))
        assert one.plan(changed).params - one.plan(base).params == expected, op


@settings(max_examples=40, deadline=None)
@given(archs, st.sampled_from([SMALL, SMALL_IMAGENET, NASLIB, SPACE]), st.sampled_from([(3, 32, 32), (1, 20, 36)]))
def test_the_size_is_the_plans(arch: Genotype, space: Darts, shape: Shape) -> None:
    plan = space.plan(arch, 7, shape)
    assert space.size(arch, 7, shape) == Size(plan.params, plan.flops)


@pytest.mark.parametrize("name", [*GENOTYPES, "EVERY_OP"])
def test_the_size_of_wider_cells(name: str) -> None:
    """Of other numbers of nodes and of outputs, with cut edges."""
    arch = GENOTYPES.get(name, EVERY_OP)
    for space in (SMALL, SMALL_IMAGENET, NASLIB):
        plan = space.plan(arch, 7, (3, 32, 32))
        assert space.size(arch, 7, (3, 32, 32)) == Size(plan.params, plan.flops)


def test_without_scale_and_shift_a_norm_weighs_nothing() -> None:
    """nb301_naslib: DARTS_V2 loses 2 w for each norm on an edge and nothing else."""
    with_, without = (spaces[name].plan(GENOTYPES["DARTS_V2"]) for name in ("nb301", "nb301_naslib"))
    normal, reduce = (32 * 2 + 64 * 2 + 128 * 2) * (5 * 2 + 1), (64 + 128) * 0
    assert with_.params - without.params == 2 * (normal + reduce)
    assert with_.flops == without.flops
    assert not any("pool" in n.name and n.op.kind == "norm" for n in with_.nodes)
    pools = [n.name.rpartition(".")[0] for n in without.nodes if n.op.kind == "pool" and "edge" in n.name]
    assert len(pools) == 2 * 5
    assert {f"{edge}.norm" for edge in pools} <= {n.name for n in without.nodes}


@pytest.mark.parametrize("shape", [(3, 1, 1), (1, 7, 9), (3, 64, 48), (3, 2, 33)])
@pytest.mark.parametrize("space", [SMALL, SMALL_IMAGENET])
def test_images_of_any_size_weigh_the_same(space: Darts, shape: Shape) -> None:
    plan = space.plan(EVERY_OP, input_shape=shape)
    assert plan.params == space.plan(EVERY_OP, input_shape=(shape[0], 32, 32)).params
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0))
    assert execute(plan, draw(plan.weights, Origin()), (x,)).isfinite().all()


@pytest.mark.parametrize("shape", [(3, 32), (32,), (3, 0, 32), (1, 3, 32, 32)])
def test_what_is_no_image_is_refused(shape: Shape) -> None:
    with pytest.raises(UserError, match="takes images CxHxW, such as 3x32x32, not " + "x".join(map(str, shape))):
        SPACE.plan(EVERY_OP, input_shape=shape)


def test_networks_that_cannot_be() -> None:
    for channels, cells, imagenet in [(0, 8, False), (16, 0, False), (15, 8, True)]:
        with pytest.raises(UserError, match="even number of channels"):
            Darts("none", channels, cells, imagenet)


# Outputs


def by_hand(space: Darts, arch: Genotype, w: dict[str, Tensor], x: Tensor) -> Tensor:
    """The network in plain torch, edges in the order of the genotype."""

    def conv(x: Tensor, name: str, **how: Any) -> Tensor:
        return F.conv2d(x, w[f"{name}.weight"], **how)

    def norm(x: Tensor, name: str) -> Tensor:
        return F.batch_norm(x, None, None, w.get(f"{name}.weight"), w.get(f"{name}.bias"), training=True)

    def halved(x: Tensor, name: str) -> Tensor:
        x = x.relu()
        halves = conv(x, f"{name}.conv1", stride=2), conv(x[:, :, 1:, 1:], f"{name}.conv2", stride=2)
        return norm(torch.cat(halves, 1), f"{name}.norm")

    def edge(x: Tensor, op: str, stride: int, name: str) -> Tensor:
        if op == "none":
            return x[:, :, ::stride, ::stride] * 0
        if op == "skip_connect":
            return halved(x, name) if stride == 2 else x
        if "pool" in op:
            pool = F.max_pool2d if op.startswith("max") else partial(F.avg_pool2d, count_include_pad=False)
            x = pool(x, 3, stride=stride, padding=1)
            return norm(x, f"{name}.norm") if space.search_edges else x
        if op == "conv_7x1_1x7":
            x = conv(x.relu(), f"{name}.wide", stride=(1, stride), padding=(0, 3))
            return norm(conv(x, f"{name}.tall", stride=(stride, 1), padding=(3, 0)), f"{name}.norm")
        kernel, groups = int(op[-1]), x.shape[1]
        if op.startswith("dil"):
            x = conv(x.relu(), f"{name}.depth", stride=stride, padding=kernel - 1, dilation=2, groups=groups)
            return norm(conv(x, f"{name}.point"), f"{name}.norm")
        for half in ("1", "2"):
            x = conv(x.relu(), f"{name}.depth{half}", stride=stride, padding=kernel // 2, groups=groups)
            x, stride = norm(conv(x, f"{name}.point{half}"), f"{name}.norm{half}"), 1
        return x

    if space.imagenet:
        s0 = norm(conv(x, "stem0.conv1", stride=2, padding=1), "stem0.norm1").relu()
        s0 = norm(conv(s0, "stem0.conv2", stride=2, padding=1), "stem0.norm2")
        s1 = norm(conv(s0.relu(), "stem1.conv", stride=2, padding=1), "stem1.norm")
    else:
        s0 = s1 = norm(conv(x, "stem.conv", padding=1), "stem.norm")
    reduced = space.imagenet
    for i in range(space.cells):
        reduces = i in (space.cells // 3, 2 * space.cells // 3)
        cell, concat = (arch.reduce, arch.reduce_concat) if reduces else (arch.normal, arch.normal_concat)
        project = norm(conv(s0.relu(), f"cell{i}.pre0.conv"), f"cell{i}.pre0.norm") if not reduced else None
        states = [halved(s0, f"cell{i}.pre0") if project is None else project]
        states.append(norm(conv(s1.relu(), f"cell{i}.pre1.conv"), f"cell{i}.pre1.norm"))
        for node in range(2, len(cell) // 2 + 2):
            total: Tensor | float = 0.0
            for op, source in cell[2 * node - 4 : 2 * node - 2]:
                stride = 2 if reduces and source < 2 else 1
                total = total + edge(states[source], op, stride, f"cell{i}.edge{node}_{source}")
            assert isinstance(total, Tensor)
            states.append(total)
        s0, s1, reduced = s1, torch.cat([states[node] for node in concat], 1), reduces
    return F.linear(s1.mean((2, 3)), w["head.linear.weight"], w["head.linear.bias"])


@pytest.mark.parametrize("name", ["every op", "AmoebaNet", "DARTS_V1", "random"])
@pytest.mark.parametrize("space", [SMALL, SMALL_IMAGENET, NASLIB])
def test_the_network_by_hand(space: Darts, name: str) -> None:
    arch = {"every op": EVERY_OP, "random": space.sample(Random(3))}.get(name) or GENOTYPES[name]
    plan = space.plan(arch, input_shape=(3, 64, 64) if space.imagenet else (3, 16, 16))
    weights = {n: v + 0.1 if "norm" in n else v for n, v in draw(plan.weights, Origin()).items()}
    x = torch.randn(3, *plan.input_shape, generator=torch.Generator().manual_seed(0))
    ours = execute(plan, weights, (x,))
    assert torch.allclose(ours, by_hand(space, arch, weights, x), atol=1e-4)
    assert ours.std() > 0.01


@pytest.mark.parametrize("name", ["every op", "NASNet", "AmoebaNet", "ENAS"])
@pytest.mark.parametrize("space", [SMALL, SMALL_IMAGENET, NASLIB])
def test_wider_cells_count_what_torch_counts_and_are_one_function_in_all_forms(space: Darts, name: str) -> None:
    arch = GENOTYPES.get(name, EVERY_OP)
    check_plan(space.plan(arch, input_shape=(3, 48, 48) if space.imagenet else (3, 12, 12)))


@pytest.mark.parametrize(("space", "side", "map_"), [(SMALL, 29, 8), (SMALL_IMAGENET, 193, 7)])
def test_the_auxiliary_tower(space: Darts, side: int, map_: int) -> None:
    """From the smallest image that will do; its classifier is given in training, and costs nothing after."""
    plan, plain = (space.plan(EVERY_OP, 5, (3, side, side), auxiliary=auxiliary) for auxiliary in (True, False))
    assert plan.flops == plain.flops
    channels = 2 * 4 * 4
    norm2 = 0 if space.imagenet else 2 * 768
    assert plan.params - plain.params == channels * 128 + 2 * 128 + 4 * 128 * 768 + norm2 + 769 * 5
    module, x = plan.module(), torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0))
    logits, second = module.train()(x)
    assert logits.shape == second.shape == (2, 5)
    assert module.eval()(x).shape == (2, 5)
    with pytest.raises(UserError, match=rf"at least {map_}x{map_} .* gets {map_ - 1}x{map_ - 1}: give larger images"):
        space.plan(EVERY_OP, 5, (3, side - 1, side - 1), auxiliary=True)


def test_swapped_edges_are_the_same_network() -> None:
    arch = SPACE.sample(Random(0))
    swapped = arch._replace(normal=tuple(arch.normal[i ^ 1] for i in range(8)))
    assert swapped != arch and SPACE.key(swapped) == SPACE.key(arch)
    plans = [SMALL.plan(each, input_shape=(3, 8, 8)) for each in (arch, swapped)]
    assert plans[0].nodes == plans[1].nodes


def test_renumbered_nodes_are_the_same_network_up_to_the_order_of_channels() -> None:
    one = Darts("one", 4, 1)  # a single reduction cell
    start = (("sep_conv_3x3", 0), ("skip_connect", 1), ("dil_conv_5x5", 0), ("max_pool_3x3", 1))
    cell = (*start, ("skip_connect", 1), ("sep_conv_5x5", 2), ("dil_conv_3x3", 3), ("avg_pool_3x3", 4))
    other = (*start[2:], *start[:2], ("skip_connect", 1), ("sep_conv_5x5", 3), ("dil_conv_3x3", 2), ("avg_pool_3x3", 4))
    archs = [SPACE.smallest()._replace(reduce=each) for each in (cell, other)]
    assert one.key(archs[0]) == one.key(archs[1])
    plans = [one.plan(arch, input_shape=(3, 8, 8)) for arch in archs]
    weights = draw(plans[0].weights, Origin())
    exchange = str.maketrans("23", "32")
    moved = {re.sub(r"edge\d_\d", lambda m: m[0].translate(exchange), name): w for name, w in weights.items()}
    columns = weights["head.linear.weight"].view(-1, 4, 8)  # [10, 4 nodes, 2 * 4 channels]
    moved["head.linear.weight"] = columns[:, [1, 0, 2, 3]].flatten(1)
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    ours, theirs = (execute(plan, w, (x,)) for plan, w in zip(plans, (weights, moved), strict=True))
    assert torch.allclose(ours, theirs, atol=1e-5)
    assert ours.std() > 0.01


# The searched space


@pytest.mark.parametrize("space", [SMALL, SMALL_IMAGENET, NASLIB])
def test_contract(space: Any) -> None:
    check_space(space, samples=2, input_shape=(3, 48, 48) if space.imagenet else (3, 12, 12))


def test_how_many() -> None:
    """Node n has n (n - 1) / 2 pairs of sources and 49 of operations."""
    assert SPACE.count() == (1 * 3 * 6 * 10 * 49**4) ** 2 == 1_037_664_180**2


@settings(max_examples=20, deadline=None)
@given(archs, st.randoms(use_true_random=False))
def test_draws_and_mutations_are_in_the_space(arch: Genotype, rng: Random) -> None:
    for each in (arch, SPACE.mutate(arch, rng), SPACE.mutate(GENOTYPES["DARTS_V1"], rng)):
        assert each.normal_concat == each.reduce_concat == (2, 3, 4, 5)
        for cell in (each.normal, each.reduce):
            assert len(cell) == 8
            assert all(op in SEARCHED for op, _ in cell)
            assert all(0 <= cell[i][1] < cell[i + 1][1] < i // 2 + 2 for i in range(0, 8, 2))
        assert SPACE.parse(SPACE.text(each)) == each


@settings(max_examples=10, deadline=None)
@given(archs)
def test_120_neighbours_each_one_edge_away(arch: Genotype) -> None:
    neighbours = SPACE.neighbours(arch)
    assert len(neighbours) == len(set(neighbours)) == 2 * (8 * 6 + 2 * (0 + 1 + 2 + 3))
    for other in neighbours:
        changes = [
            Counter(a[i : i + 2]) - Counter(b[i : i + 2])
            for a, b in zip(arch, other, strict=True)
            for i in (0, 2, 4, 6)
        ]
        assert sum(change.total() for change in changes) == 1
    assert all(arch in SPACE.neighbours(other) for other in neighbours[::17])


@pytest.mark.parametrize("name", GENOTYPES)
def test_published_ones_have_neighbours_too(name: str) -> None:
    arch = GENOTYPES[name]
    for other in SPACE.neighbours(arch)[::23]:
        assert SPACE.parse(SPACE.text(other)) == other != arch
        assert (other.normal_concat, other.reduce_concat) == (arch.normal_concat, arch.reduce_concat)


def test_samples_are_uniform() -> None:
    rng = Random(0)
    drawn = [SPACE.sample(rng) for _ in range(6_000)]
    for cells in ([arch.normal for arch in drawn], [arch.reduce for arch in drawn]):
        first = Counter((cell[0][0], cell[1][0]) for cell in cells)
        assert len(first) == 49 and chisquare(list(first.values())).pvalue > 1e-3
        for node in (3, 4, 5):
            pairs = Counter((cell[2 * node - 4][1], cell[2 * node - 3][1]) for cell in cells)
            assert set(pairs) == set(combinations(range(node), 2))
            assert chisquare(list(pairs.values())).pvalue > 1e-3
    between = Counter((arch.normal[7][0], arch.reduce[0][0]) for arch in drawn)
    assert len(between) == 49 and chisquare(list(between.values())).pvalue > 1e-3


def test_mutation_is_uniform_over_the_neighbours() -> None:
    rng, arch = Random(1), SPACE.sample(Random(2))
    children = Counter(SPACE.mutate(arch, rng) for _ in range(3_600))
    assert set(children) == set(SPACE.neighbours(arch))
    assert chisquare(list(children.values())).pvalue > 1e-3


def test_samples_within_a_tight_budget_are_uniform_over_what_fits() -> None:
    """Room for 304 parameters, in one normal and two reduction cells of 8, 16 and 32 channels.

    In the normal cell, three operations are free, a dilated convolution 3x3 has 152, one 5x5 280, a separable one 304:
    3^8 cells with none, 8 3^7 with one of a kind, 28 3^6 with two of 152. In the reduction cell all have more, but for
    the skip between its own nodes, which is free: so it is as likely as a pool there, and impossible elsewhere.
    """
    space: Any = Darts("small", 8, 3)
    rng = Random(0)
    least = space.plan(space.smallest(), input_shape=(3, 8, 8)).params
    tight = BudgetedSpace(space, Budget(max_params=least + 304), 10, (3, 8, 8))
    assert not tight.roomy
    drawn = [tight.walk(rng, 200) for _ in range(218)]
    convolutions = Counter(tuple(sorted(op for op, _ in arch.normal if "conv" in op)) for arch in drawn)
    kinds = [(), ("dil_conv_3x3",), ("dil_conv_5x5",), ("sep_conv_3x3",), ("dil_conv_3x3",) * 2]
    assert set(convolutions) == set(kinds)
    assert chisquare([convolutions[kind] for kind in kinds], [18, 48, 48, 48, 56]).pvalue > 1e-3
    reduced = Counter((op, source < 2) for arch in drawn for op, source in arch.reduce)
    pools = SEARCHED[:2]
    assert set(reduced) == {*((op, outer) for op in pools for outer in (True, False)), ("skip_connect", False)}
    assert chisquare([reduced[op, False] for op in (*pools, "skip_connect")]).pvalue > 1e-3
