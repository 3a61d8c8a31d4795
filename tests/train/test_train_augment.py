"""Recipes and augmentations: as the papers say, checked by slow and obvious means."""

from __future__ import annotations

import colorsys
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from epochzero.errors import UserError
from epochzero.plan import Builder, Plan
from epochzero.plan.execute import execute
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.wiring import Add, Identity
from epochzero.registry import spaces
from epochzero.train import augment
from epochzero.train.drop_path import DroppingSum, with_drop_path
from epochzero.train.recipes import RECIPES, Recipe, recipe_of

# Recipes


def test_the_cosine_is_torchs() -> None:
    recipe = Recipe(epochs=4, learning_rate=0.3, end_rate=0.02)
    optimiser = torch.optim.SGD([torch.zeros(1)], 0.3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 4 * 7, 0.02)
    for step in range(4 * 7):
        assert recipe.rate(step, 7) == pytest.approx(schedule.get_last_lr()[0], rel=1e-9)
        optimiser.step()
        schedule.step()


def test_warm_up_and_linear_fall() -> None:
    recipe = Recipe(epochs=5, learning_rate=0.5, warm_up=1, schedule="linear")
    rates = [recipe.rate(step, 2) for step in range(10)]
    assert rates == pytest.approx([0.25, 0.5, 0.5, 0.4375, 0.375, 0.3125, 0.25, 0.1875, 0.125, 0.0625])


def test_the_papers_numbers() -> None:
    darts, zen = RECIPES["darts"], RECIPES["zen"]
    assert (darts.epochs, darts.batch_size, darts.learning_rate, darts.weight_decay) == (600, 96, 0.025, 3e-4)
    assert (darts.cutout, darts.auxiliary, darts.drop_path) == (16, 0.4, 0.2)
    assert (zen.epochs, zen.batch_size, zen.learning_rate, zen.weight_decay) == (1440, 256, 0.1, 5e-4)
    assert zen.mixup and zen.label_smoothing and zen.erase
    hnas = RECIPES["hnas"]
    assert (hnas.epochs, hnas.batch_size, hnas.learning_rate, hnas.end_rate) == (10, 576, 0.1, 0.005)
    assert darts.dropped(0) == 0 and darts.dropped(300) == pytest.approx(0.1)
    assert RECIPES["nb301"].dropped(0) == RECIPES["nb301"].dropped(99) == 0.2
    nesbs = RECIPES["nesbs"]
    assert [nesbs.dropped(epoch) for epoch in (0, 300, 600)] == pytest.approx([0.2, 0.1, 0])
    cifar100, imagenet, topology = (RECIPES[name] for name in ("hnas_cifar100", "hnas_imagenet", "topology"))
    assert (cifar100.learning_rate, cifar100.end_rate, cifar100.auxiliary) == (0.035, 0.001, 0.6)
    assert cifar100.dropped(300) == pytest.approx(0.15)
    assert (imagenet.rate(5 * 4 - 1, 4), imagenet.rate(250 * 4, 4)) == (0.7, 0)
    assert imagenet.rate(127 * 4 + 2, 4) == pytest.approx(0.35), "a cosine is halfway in the middle"
    assert (topology.batch_size, topology.cutout, topology.auxiliary, topology.drop_path) == (80, 0, 0, 0)
    with pytest.raises(UserError, match="steady or falls"):
        Recipe(drop_path=0.2, drop_path_steady=True, drop_path_falls=True)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"learning_rat": 0.1}, "A recipe has no 'learning_rat'. Did you mean 'learning_rate'?"),
        ({"epochs": 0}, "A recipe's epochs is 1 to 1e.06, not 0"),
        ({"epochs": 1.5}, "A recipe's epochs is a whole number"),
        ({"momentum": "much"}, "A recipe's momentum is a number, not 'much'"),
        ({"schedule": "steps"}, "cosine or linear"),
        ({"momentum": 0}, "nesterov needs a momentum"),
        ({"drop_path": 1}, "drop_path is 0 to 0.99"),
    ],
)
def test_numbers_that_make_no_recipe(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        recipe_of("default", changes)


def test_a_short_recipe_keeps_a_short_warm_up() -> None:
    assert recipe_of("zen", {"epochs": 5}).warm_up == 0
    assert recipe_of("zen", {"epochs": 8, "warm_up": 4}).warm_up == 4


# Augmentation


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(st.integers(0, 2**31), st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_a_crop_is_a_window_of_the_padded_image(seed: int, pad: int) -> None:
    x = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5) + 1
    wide = F.pad(x, (pad,) * 4)
    for i, found in enumerate(augment.crop(x, pad, rng(seed))):
        places = [(r, c) for r in range(2 * pad + 1) for c in range(2 * pad + 1)]
        assert any(torch.equal(found, wide[i, :, r : r + 4, c : c + 5]) for r, c in places)


def test_every_window_comes_up() -> None:
    x = torch.arange(1, 5.0).reshape(1, 1, 2, 2).expand(400, 1, 2, 2)
    assert len({tuple(found.flatten().tolist()) for found in augment.crop(x, 1, rng())}) == 9


def test_half_of_the_images_are_flipped() -> None:
    x = torch.tensor([[1.0, 2.0]]).expand(1000, 1, 1, 2)
    turned = (augment.flip(x, rng())[:, 0, 0, 0] == 2).double().mean()
    assert turned == pytest.approx(0.5, abs=0.06)


def test_cutout_blanks_a_square_clipped_at_the_border() -> None:
    x = torch.ones(300, 2, 8, 8)
    sizes = []
    for image in augment.cutout(x, 4, rng()):
        assert torch.equal(image[0], image[1])
        blank = (image[0] == 0).nonzero()
        (top, left), (bottom, right) = blank.min(0).values, blank.max(0).values + 1
        assert (image[0, top:bottom, left:right] == 0).all()
        assert len(blank) == (bottom - top) * (right - left)
        sizes.append((int(bottom - top), int(right - left)))
    assert set(sizes) == {(h, w) for h in (2, 3, 4) for w in (2, 3, 4)}


def test_erasing_is_as_often_and_as_large_as_said() -> None:
    x = torch.ones(2000, 1, 32, 32)
    shares = (augment.erase(x, 0.5, rng()) == 0).double().mean((1, 2, 3))
    erased = shares[shares > 0]
    assert len(erased) / 2000 == pytest.approx(0.5, abs=0.05)
    assert float(erased.min()) > 0.01 and float(erased.max()) < 0.36
    assert float(erased.mean()) == pytest.approx(0.175, abs=0.02)


def test_mixup_mixes_images_as_it_says() -> None:
    x = torch.randn(6, 3, 4, 4)
    mixed, partner, share = augment.mixup(x, 0.2, rng(1))
    assert sorted(partner.tolist()) == list(range(6))
    assert 0 <= share <= 1
    for i, j in enumerate(partner):
        torch.testing.assert_close(mixed[i], share * x[i] + (1 - share) * x[j])
    shares = [augment.mixup(x, 0.2, rng(seed))[2] for seed in range(400)]
    assert float(np.mean(shares)) == pytest.approx(0.5, abs=0.08)
    assert float(np.var(shares)) == pytest.approx(1 / (4 * 1.4), abs=0.03)  # of Beta(a, a): 1 / (4 (2a + 1))


# Drop path


def summed() -> Plan:
    """y = skip(x) + op(x), with an op that is read by the sum alone."""
    net = Builder()
    x = net.input((1, 1, 1))
    net.add(Add(), net.add(Identity(), x, name="skip"), net.add(ReLU(), x, name="path"), x, name="sum")
    return net.plan()


def test_paths_are_dropped_and_skips_are_not() -> None:
    plan = with_drop_path(summed(), 0.25, rng())
    op = plan.nodes[-1].op
    assert isinstance(op, DroppingSum) and op.droppable == (False, True, False)
    y = execute(plan, {}, [torch.ones(4000, 1, 1, 1)]).flatten()
    assert sorted(set(y.tolist())) == pytest.approx([2, 2 + 1 / 0.75])
    assert float((y == 2).double().mean()) == pytest.approx(0.25, abs=0.03)
    assert with_drop_path(plan, 0.0, rng()) is plan


def test_in_darts_the_edges_of_the_nodes_are_paths() -> None:
    space = spaces["darts_search"]
    plan = space.plan(space.sample(Random(1)), 10, (3, 32, 32))
    dropping = with_drop_path(plan, 0.2, rng())
    sums = [node.op for node in dropping.nodes if isinstance(node.op, DroppingSum)]
    skips = sum(isinstance(node.op, Identity) for node in plan.nodes)
    assert len(sums) == 8 * 4
    assert sum(not may_go for op in sums for may_go in op.droppable) == skips
    assert dropping.weights == plan.weights


def test_hues_turn_as_the_standard_library_turns_them() -> None:
    x = torch.randint(256, (4, 3, 3, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    x[0, :, 0, 0] = 77  # grey
    turned = augment.hue(x, 0.2, torch.Generator().manual_seed(1))
    by = 0.2 * (2 * torch.rand(4, generator=torch.Generator().manual_seed(1)) - 1)
    for image, found, share in zip(x, turned, by.tolist(), strict=True):
        for before, after in zip(image.flatten(1).T.tolist(), found.flatten(1).T.tolist(), strict=True):
            h, s, v = colorsys.rgb_to_hsv(*(colour / 255 for colour in before))
            assert after == pytest.approx([255 * c for c in colorsys.hsv_to_rgb((h + share) % 1, s, v)], abs=0.51)
    assert torch.equal(augment.hue(x[:, :1], 0.2, torch.Generator()), x[:, :1]), "one colour has no hue"
