"""Shared weights: every option is drawn equally often, and a path is the network that it stands for."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from epochzero.errors import UserError
from epochzero.plan import execute, generator
from epochzero.registry import spaces
from epochzero.spaces.genotypes import SEARCHED, Genotype
from epochzero.spaces.nb201 import CELLS, OPS
from epochzero.supernet import SharedWeights, SinglePath, shared
from epochzero.supernet.darts_pairs import rejoined

SHAPE = (3, 8, 8)
SIZES: dict[str, dict[str, Any]] = {
    "nb201": {"channels": 4, "cells": 1},
    "darts": {"channels": 4, "cells": 3},
    "darts, half of the channels": {"channels": 8, "cells": 3, "partial": 2},
}


def small(which: str) -> SinglePath:
    return shared(spaces[which.partition(",")[0]], 5, SHAPE, **SIZES[which])


def images(count: int = 6) -> Tensor:
    return torch.randn(count, *SHAPE, generator=torch.Generator().manual_seed(0))


# Fairness


def chi_squared(counts: Counter[Any], options: int) -> float:
    expected = counts.total() / options
    return sum((counts[i] - expected) ** 2 / expected for i in range(options))


@pytest.mark.parametrize("which", ["nb201", "darts"])
def test_every_option_is_drawn_equally_often(which: str) -> None:
    network, rng, draws = small(which), generator(3, "fairness"), 3000
    paths = [network.uniform(rng) for _ in range(draws)]
    for place, decision in enumerate(network.decisions):
        counts = Counter(path[place] for path in paths)
        options = len(decision.options)
        assert chi_squared(counts, options) < options - 1 + 5 * (2 * (options - 1)) ** 0.5, decision.name


def test_darts_trains_every_operation_of_an_edge_and_every_pair_equally_often() -> None:
    network, rng, draws = small("darts"), generator(4, "fairness"), 3000
    edges: Counter[tuple[int, int, str]] = Counter()
    for _ in range(draws):
        arch: Genotype = network.decode(network.uniform(rng))
        for at, (op, source) in enumerate(arch.normal):
            edges[at // 2 + 2, source, op] += 1
    for node in (2, 3, 4, 5):
        used = Counter({source: sum(edges[node, source, op] for op in SEARCHED) for source in range(node)})
        assert used.total() == 2 * draws, "two inputs for each node"
        for source in range(node):
            expected = draws * 2 / node / len(SEARCHED)
            for op in SEARCHED:
                assert abs(edges[node, source, op] - expected) < 5 * expected**0.5


def test_a_step_moves_the_weights_of_one_option_alone() -> None:
    network = small("nb201")
    picks = tuple(OPS.index("nor_conv_1x1") for _ in network.decisions)
    names = network.path(picks, "batch").weights
    assert any("nor_conv_1x1" in name for name in names)
    assert not any("nor_conv_3x3" in name for name in names)


# Inheritance


@pytest.mark.parametrize("which", list(SIZES))
def test_a_path_is_the_copy_with_inherited_weights_and_the_relaxed_plan_with_ones(which: str) -> None:
    network, x = small(which), images()
    weights, rng = SharedWeights(network, network.draw(seed=1)), generator(0, which)
    for _ in range(4):
        picks = network.uniform(rng)
        arch = network.decode(picks)
        inside = weights.predict(picks, x)
        alone = network.alone(arch).module()
        alone.load_state_dict(weights.inherited(arch))
        copied = execute(alone.plan.with_statistics("batch"), alone.weights(), (x,)).softmax(1)
        everything = execute(network.relaxed, weights.weights, (x, *network.vectors(picks))).softmax(1)
        assert torch.allclose(inside, copied, atol=1e-6)
        assert torch.allclose(inside, everything, atol=1e-6)


def test_full_size_is_the_network_of_the_space() -> None:
    for name, space in (("nb201", spaces["nb201"]), ("darts", spaces["darts_search"])):
        network, arch = shared(space, 10, (3, 32, 32)), space.sample(Random(0))
        assert network.alone(arch).weights == space.plan(arch, 10, (3, 32, 32)).weights, name
    five = shared(spaces["nb201"], 10, (3, 32, 32), cells=CELLS)
    assert shared(spaces["nb201"], 10, (3, 32, 32)).relaxed.weights == five.relaxed.weights


@pytest.mark.parametrize("which", ["nb201", "darts"])
def test_encode_inverts_decode(which: str) -> None:
    network, space = small(which), spaces[which]
    for seed in range(20):
        arch = space.sample(Random(seed))
        assert network.decode(network.encode(arch)) == arch


def test_rejoined_shuffles_what_went_through_with_what_went_past() -> None:
    x = torch.arange(4.0).view(1, 4, 1, 1).expand(1, 4, 2, 2)
    part = torch.full((1, 2, 2, 2), 9.0)
    assert rejoined(x, part, 2, 1)[0, :, 0, 0].tolist() == [9, 2, 9, 3]
    halved = rejoined(x, part[..., :1, :1], 2, 2)
    assert halved.shape == (1, 4, 1, 1) and halved.flatten().tolist() == [9, 2, 9, 3]


def test_refusals() -> None:
    for message, make in (
        ("has no weight-sharing network: use nb201 or darts", lambda: shared(spaces["resnet"], 10, SHAPE)),
        ("Partial channels are for darts", lambda: shared(spaces["nb201"], 10, SHAPE, partial=2)),
        ("need a multiple of 8 channels, not 12", lambda: shared(spaces["darts"], 10, SHAPE, 12, 3, 4)),
        ("use darts in place of darts_imagenet", lambda: shared(spaces["darts_imagenet"], 10, SHAPE, 8, 3)),
        ("outside the searched space", lambda: small("darts").encode(spaces["darts"].parse("NASNet"))),
    ):
        with pytest.raises(UserError, match=message):
            make()
