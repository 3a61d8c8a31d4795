"""Budgets that leave little of a space: a walk within them ends as rejection does, and mutation does not get stuck."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from scipy.stats import chisquare, ks_2samp

from epochzero.errors import UserError
from epochzero.registry import spaces
from epochzero.spaces.block_strings import layers_of
from epochzero.spaces.budget import Budget, BudgetedSpace, Size
from epochzero.spaces.nb201 import Cell

NB201, MOBILE, RESNET = spaces["nb201"], spaces["mobilenet"], spaces["resnet"]
IMAGENET = Budget(max_flops=450_000_000)


class Sizeless:
    """The numbers below 10^6, each beside the next and the last; every third also beside the third after it."""

    name, cell_block = "ladder", ""
    top = 10**6

    def sample(self, rng: Random) -> int:
        return rng.randrange(self.top)

    def neighbours(self, arch: int) -> list[int]:
        far = [arch - 3, arch + 3] if arch % 3 == 0 else []
        return [n for n in (arch - 1, arch + 1, *far) if 0 <= n < self.top]

    def mutate(self, arch: int, rng: Random) -> int:
        return rng.choice(self.neighbours(arch))

    def smallest(self) -> int:
        return 0


class Ladder(Sizeless):
    """Number n has n parameters."""

    def size(self, arch: int, num_classes: int, input_shape: tuple[int, ...]) -> Size:
        return Size(arch, 0)


class Skewed(Ladder):
    """Three digits, of which 9 is ten times as likely as any other: `sample` is not uniform, and `redraw` knows."""

    name = "skewed"
    digits, weights = range(10), (*[1] * 9, 10)

    def sample(self, rng: Random) -> Any:
        return tuple(rng.choices(self.digits, self.weights, k=3))

    def redraw(self, arch: Any, rng: Random) -> Any:
        at = rng.randrange(3)
        return (*arch[:at], *rng.choices(self.digits, self.weights), *arch[at + 1 :])

    def smallest(self) -> Any:
        return (0, 0, 0)

    def size(self, arch: Any, num_classes: int, input_shape: tuple[int, ...]) -> Size:
        return Size(sum(arch), 0)


def budgeted(space: Any, **limits: int) -> BudgetedSpace:
    return BudgetedSpace(space, Budget(**limits), 10, (3, 32, 32))


# Small cases that can be enumerated


def test_a_walk_is_uniform_though_some_have_more_neighbours() -> None:
    """Ten numbers of a million: rejection would never find them. A walk without the ratio of degrees would fail."""
    space, rng = budgeted(Ladder(), max_params=9), Random(0)
    assert not space.roomy
    ends = Counter(space.walk(rng, 200) for _ in range(1500))
    assert set(ends) == set(range(10))
    assert chisquare([ends[n] for n in range(10)]).pvalue > 1e-3
    assert space.sample(Random(0)) == space.walk(Random(0))


def test_a_walk_that_redraws_keeps_the_distribution_of_the_samples() -> None:
    space, rng = budgeted(Skewed(), max_params=11), Random(0)
    chances = {digits: 10 ** digits.count(9) for digits in itertools.product(range(10), repeat=3) if sum(digits) <= 11}
    ends = Counter(max(space.walk(rng, 60)) for _ in range(2000))
    share: Counter[int] = Counter()
    for digits, chance in chances.items():
        share[max(digits)] += chance
    expected = [share[n] * 2000 / sum(chances.values()) for n in range(10)]
    assert (
        chisquare([ends[0] + ends[1], *(ends[n] for n in range(2, 10))], [sum(expected[:2]), *expected[2:]]).pvalue
        > 1e-3
    )


def test_a_walk_on_nb201_ends_as_rejection_does() -> None:
    """Within a budget of one 1x1 convolution: 729 + 6 * 243 cells of 15,625."""
    space, rng = budgeted(NB201, max_params=73_306 + 28_000), Random(0)
    fitting = [cell for cell in NB201 if cell.count("nor_conv_3x3") == 0 and cell.count("nor_conv_1x1") <= 1]
    assert len(fitting) == 729 + 6 * 243
    assert space.roomy
    drawn = [space.walk(rng, 50) for _ in range(500)]
    assert set(drawn) <= set(fitting)

    def compare(statistic: Callable[[Cell], object]) -> None:
        found, share = Counter(map(statistic, drawn)), Counter(map(statistic, fitting))
        expected = [count * len(drawn) / len(fitting) for count in share.values()]
        assert chisquare([found[value] for value in share], expected).pvalue > 1e-3

    compare(lambda cell: "nor_conv_1x1" in cell)
    compare(lambda cell: min(cell.count("none"), 4))
    compare(lambda cell: (cell[0], cell[5] == "skip_connect"))


def test_the_only_network_that_fits() -> None:
    space = budgeted(Ladder(), max_params=0)
    assert space.sample(Random(0)) == space.mutate(0, Random(0)) == 0
    assert space.neighbours(0) == []


def test_mutation_from_far_outside_comes_back_in() -> None:
    space = budgeted(Ladder(), max_params=20)
    assert space.mutate(500_000, Random(0)) <= 20


def test_the_same_random_state_gives_the_same_draws() -> None:
    for limits in ({"max_params": 9}, {"max_params": 900_000}, {}):
        drawn = [[budgeted(Ladder(), **limits).sample(rng) for _ in range(3)] for rng in (Random(5), Random(5))]
        assert drawn[0] == drawn[1]
    fresh, used = budgeted(Ladder(), max_params=9), budgeted(Ladder(), max_params=9)
    used.sample(Random(1))
    assert fresh.sample(Random(2)) == used.sample(Random(2))


def test_without_a_limit_no_size_is_asked_for() -> None:
    assert 0 <= budgeted(Sizeless()).sample(Random(0)) < 10**6
    with pytest.raises(UserError, match="'ladder' does not know the size of its networks"):
        budgeted(Sizeless(), max_params=9)


def test_sizes_may_come_from_elsewhere() -> None:
    space = BudgetedSpace(Ladder(), Budget(max_params=9), 10, (3, 32, 32), size=lambda arch: Size(2 * arch, 0))  # type: ignore[arg-type]
    assert [n for n in range(20) if space.fits(n)] == [0, 1, 2, 3, 4]


# The spaces of ZenNAS


@pytest.mark.parametrize(
    ("space", "budget", "says"),
    [
        (MOBILE, Budget(max_params=2_000_000), "No mobilenet network has at most 2,000,000 parameters: .* 2,072,048"),
        (MOBILE, Budget(max_flops=8_000_000), "8,000,000 multiply-accumulates: the smallest has 8,292,560"),
        (MOBILE, Budget(10**9, 8_000_000), "8,000,000 multiply-accumulates: the smallest has 8,292,560"),
    ],
)
def test_a_budget_that_nothing_meets_is_refused_at_once(space: Any, budget: Budget, says: str) -> None:
    with pytest.raises(UserError, match=says):
        BudgetedSpace(space, budget, 1000, (3, 224, 224))


def test_mobile_networks_of_450_million() -> None:
    space, rng = BudgetedSpace(MOBILE, IMAGENET, 1000, (3, 224, 224)), Random(0)
    assert space.roomy
    for _ in range(20):
        arch = space.sample(rng)
        for found in (arch, space.mutate(arch, rng)):
            assert MOBILE.plan(found).flops <= 450_000_000
            assert MOBILE.parse(MOBILE.text(found)) == found


def test_a_walk_among_mobile_networks_ends_as_rejection_does() -> None:
    space, rng = BudgetedSpace(MOBILE, Budget(max_flops=1_500_000_000), 1000, (3, 224, 224)), Random(0)
    walked, drawn = [space.walk(rng, 500) for _ in range(50)], [space.sample(rng) for _ in range(400)]
    for statistic in (
        len,
        layers_of,
        lambda arch: arch[1].width,
        lambda arch: arch[-2].bottleneck,
        lambda arch: MOBILE.size(arch, 1000, (3, 224, 224)).flops,
    ):
        assert ks_2samp([statistic(arch) for arch in walked], [statistic(arch) for arch in drawn]).pvalue > 1e-3


def test_budgets_of_which_hardly_anything_is_left() -> None:
    """Twice the smallest: none of a thousand samples fits, but walks fill the budget, and mutations stay in it."""
    for full, smallest in ((MOBILE, 8_292_560), (RESNET, 1_876_048)):
        shape = (3, full.side, full.side)
        space, rng = BudgetedSpace(full, Budget(max_flops=2 * smallest), full.classes, shape), Random(0)
        assert not space.roomy
        drawn = [space.sample(rng) for _ in range(3)]
        assert len(set(drawn)) == 3
        sizes = [full.plan(found).flops for arch in drawn for found in (arch, space.mutate(arch, rng))]
        assert max(sizes) <= 2 * smallest
        assert max(sizes) > 1.5 * smallest


def test_a_space_may_have_no_network_that_is_smallest_in_everything() -> None:
    """1114 has the fewest parameters of its skeletons, 3334 the fewest multiply-accumulates."""
    macro = spaces["transnas_macro"]
    fewest = macro.plan(macro.least("params"), 10, (3, 64, 64)).params
    assert fewest < macro.plan(macro.smallest(), 10, (3, 64, 64)).params
    tight = BudgetedSpace(macro, Budget(max_params=fewest), 10, (3, 64, 64))
    assert tight.sample(Random(0)) == macro.least("params")
    both = macro.plan(macro.smallest(), 10, (3, 64, 64)).flops
    with pytest.raises(UserError, match="raise one of the limits"):
        BudgetedSpace(macro, Budget(fewest, both), 10, (3, 64, 64)).sample(Random(0))
