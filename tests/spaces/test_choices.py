"""Spaces of factories: any function with choices is a space like any other."""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from torch import nn

import epochzero as ez
from epochzero.errors import UserError
from epochzero.spaces.choices import FactorySpace
from epochzero.testing import check_space
from tests.command import epochzero

ACTS = {"relu": nn.ReLU, "gelu": nn.GELU}


def build(width: int, depth: int, act: str = "relu", num_classes: int = 10) -> nn.Module:
    layers: list[nn.Module] = []
    for before in [3, *[width] * (depth - 1)]:
        layers += [nn.Conv2d(before, width, 3, padding=1), ACTS[act]()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, num_classes))


def mixed(kind: str, width: int = 4, heads: int = 0, hidden: int = 0, num_classes: int = 10) -> nn.Module:
    body: nn.Module = nn.Conv2d(3, width, 3)
    if kind == "wide":
        body = nn.Sequential(body, nn.ReLU(), nn.Conv2d(width, heads * (hidden or 1), 1))
        width = heads * (hidden or 1)
    return nn.Sequential(body, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, num_classes))


PLAIN = ez.choices(build, width=[4, 8, 6], depth=[1, 2], act=["relu", "gelu"])
NESTED = ez.choices(
    mixed,
    kind=["plain", "wide"],
    width=[4, 8],
    heads=lambda kind: [2, 4] if kind == "wide" else [],
    hidden=lambda heads: range(1, heads) if heads else [],
)


@pytest.mark.parametrize("space", [PLAIN, NESTED], ids=["plain", "nested"])
def test_the_contract(space: FactorySpace) -> None:
    check_space(space, samples=3, input_shape=(3, 8, 8))
    everything = list(space)
    around = {arch: set(space.neighbours(arch)) for arch in everything}
    assert all(one in around[other] for one in everything for other in around[one])  # mutual, as walks need it
    rng = Random(0)
    for one, other in itertools.product(everything, repeat=2):
        assert space.crossover(one, other, rng) in around
    copy = pickle.loads(pickle.dumps(PLAIN))
    assert (copy.name, list(copy)) == (PLAIN.name, list(PLAIN))


def test_choices_that_depend_on_others() -> None:
    """plain: 2 widths; wide: 2 widths, and 1 + 3 pairs of heads and hidden."""
    assert NESTED.count() == 2 + 2 * (1 + 3) == len(set(NESTED))
    arch = NESTED.parse("kind=wide, width=8,heads=4 , hidden=3")
    assert NESTED.values(arch) == {"kind": "wide", "width": 8, "heads": 4, "hidden": 3}
    assert NESTED.text(NESTED.parse("kind=plain, width=4")) == "kind=plain, width=4"
    assert {NESTED.text(other) for other in NESTED.neighbours(NESTED.parse("kind=plain, width=4"))} == {
        "kind=plain, width=8",
        *(f"kind=wide, width=4, heads={heads}, hidden={hidden}" for heads in (2, 4) for hidden in range(1, heads)),
    }
    drawn = Counter(NESTED.sample(Random(seed)) for seed in range(2000))
    assert len(drawn) == 10 and min(drawn.values()) > 140  # 200 each


def test_search_with_a_budget_a_store_and_a_report(tmp_path: Path) -> None:
    result = ez.search(PLAIN, "params", budget=12, max_params="400", store=tmp_path / "r.db", batch_size=4)
    assert result.best is not None and result.winner.score.value <= 400
    sizes = {arch: sum(p.numel() for p in PLAIN.build(arch).parameters()) for arch in PLAIN}
    assert result.winner.score.value == max(size for size in sizes.values() if size <= 400)
    assert result.report(tmp_path / "report.html").is_file()
    front = ez.search(PLAIN, objectives="params,-flops", budget=12, data="pink", batch_size=4)
    assert front.members
    ranking = ez.rank(["width=4, depth=1, act=relu", "width=8, depth=2, act=gelu"], space=PLAIN, proxy="params")
    assert ranking.best.name == "width=8, depth=2, act=gelu"


def test_a_choice_that_cannot_be_built_fails_and_the_search_goes_on() -> None:
    def brittle(width: int, num_classes: int) -> nn.Module:
        if width % 4:
            raise ValueError(f"{width} is not divisible by 4")
        return build(width, 1, num_classes=num_classes)

    space = ez.choices(brittle, width=[2, 4, 6, 8])
    for limit in (None, 200):
        result = ez.search(space, "snip", "random", 4, batch_size=4, max_params=limit)
        assert result.winner.text in ("width=4", "width=8") if limit is None else result.winner.text == "width=4"
        reasons = [why for why in result.unscored if "cannot be built: ValueError: 2 is not divisible by 4" in why]
        assert len(reasons) == 1 and sum(result.unscored.values()) == 2


def test_values_of_any_kind() -> None:
    def of(norm: Any, sizes: tuple[int, int], rate: float | None) -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, sizes[0], sizes[1]), norm(sizes[0]), nn.Dropout(rate or 0))

    space = ez.choices(of, norm=[nn.BatchNorm2d, nn.InstanceNorm2d], sizes=[(4, 3), (4, 5)], rate=[None, 0.5])
    text = "norm=BatchNorm2d, sizes=(4, 5), rate=0.5"
    assert space.text(space.parse(text)) == text and space.count() == 8
    assert space.build(space.parse(text))[0].kernel_size == (5, 5)  # type: ignore[index]


def test_the_code_is_part_of_the_name() -> None:
    other = ez.choices(mixed, kind=["plain"])
    assert len({PLAIN.name, NESTED.name, other.name, ez.choices(mixed, kind=["wide"]).name}) == 4


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"width": 3, "depth": [1]}, "The options of 'width' are 3: give a list"),
        ({"width": "ab", "depth": [1]}, "The options of 'width' are 'ab': give a list"),
        ({"width": [], "depth": [1]}, "'width' has no options"),
        ({"width": [4, 4]}, "Two options of 'width' have the same text: 4, 4"),
        ({"widht": [4]}, "build takes no 'widht'. Did you mean 'width'"),
        ({"width": lambda depth: [4], "depth": [1]}, "depend on 'depth', which is no earlier choice"),
        ({}, "at least one choice"),
    ],
)
def test_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        ez.choices(build, **options)


def test_texts_that_name_no_network() -> None:
    for text in ("width=5, depth=1, act=relu", "width=4", "width=4, depth=1, act=relu, more=1", "depth=1, width=4"):
        with pytest.raises(UserError, match="is not a network of this space"):
            PLAIN.parse(text)


def test_a_plug_in(tmp_path: Path) -> None:
    from tests.forgetting import plugins_forgotten

    (tmp_path / "mine.py").write_text(
        "import epochzero as ez\nfrom epochzero.registry import spaces\nfrom tests.spaces.test_choices import build\n\n"
        "spaces.register('mine', ez.choices(build, width=[4, 8], depth=[1, 2]))\n"
    )
    asked = ("--plugin", tmp_path / "mine.py", "--batch-size", "4", "--json")
    with plugins_forgotten():
        found = epochzero("score", "--space", "mine", "--arch", "width=8, depth=2", "--proxy", "snip", *asked).json
        assert found["scores"]["snip"]["status"] == "ok"


def test_images_that_no_network_takes_are_refused_before_the_search() -> None:
    def halving(depth: int, num_classes: int) -> nn.Module:
        layers = (nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.MaxPool2d(2)) for _ in range(depth))
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, num_classes))

    common: dict[str, Any] = {"proxy": "params", "budget": 2, "batch_size": 4}
    with pytest.raises(UserError, match=r"images of 3x4x4 \(.*too small\)\. The smallest that work are 3x8x8\."):
        ez.search(ez.choices(halving, depth=[4, 3]), input_shape=(3, 4, 4), **common)
    assert ez.search(ez.choices(halving, depth=[3, 2]), input_shape=(3, 4, 4), **common).best is not None
    never = ez.choices(lambda depth: nn.Linear(7, depth), depth=[1, 2])
    assert ez.search(never, input_shape=(3, 4, 4), **{**common, "proxy": "snip"}).best is None  # the scores say why
