"""Every proxy in every space: populations of 1, 3 and 8 networks score as these do one at a time, in double precision.

The networks are narrow and shallow, of unequal widths and depths where the space has such, and shuffled. A space that
would be the same network as another in this size has that one's name in place of networks. A space that is not in the
table, such as a new one, is taken as it is, on small images, or its native inputs if these are no images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from epochzero import data
from epochzero.engine import PlanNetwork, parse
from epochzero.engine.population.population import Population
from epochzero.engine.space_networks import takes_ids
from epochzero.plan import Plan
from epochzero.registry import proxies, spaces
from epochzero.spaces import mnasnet, nb1shot1, nb101, nb201, transnas
from epochzero.spaces.base import GivesPlans, native_of
from epochzero.spaces.nats_sss import NatsSSS
from epochzero.spaces.nb101 import NB101
from epochzero.testing.populations import by_itself, check_same_in_a_population, precise
from epochzero.types import Shape

SIZES = (1, 3, 8)
CLASSES, SAMPLES = 3, 3
FEW = {
    "lswag": f"lswag(samples={SAMPLES})",
    "near": f"near(samples={SAMPLES})",
    "swap": f"swap(repeats=2,samples={SAMPLES})",
    "swap_reg": f"swap_reg(repeats=2,samples={SAMPLES})",
    "wpca": f"wpca(samples={SAMPLES})",
}
"""proxies with other settings than their own, which take 16 samples, `swap` 32 times"""
SMALL: Shape = (3, 8, 8)
Make = Callable[[int, Random], Plan]
"""A network of a space, by its number."""


@dataclass(frozen=True)
class Row:
    """The way in which networks of a space are made small."""

    make: Callable[[Any, int, Random, Shape], Plan]
    shape: Shape = SMALL
    patches: tuple[tuple[Any, str, Any], ...] = ()
    """modules' constants"""
    has_scores: int = 25
    """proxies that score some of the networks, at least"""
    without: tuple[tuple[str, str], ...] = ()
    """proxies that are left out, and why"""


def sampled(space: Any, _: int, rng: Random, shape: Shape) -> Plan:
    plan: Plan = space.plan(space.sample(rng), CLASSES, shape)
    return plan


def of_cells(space: Any, i: int, rng: Random, shape: Shape) -> Plan:
    """Two or three cells of four channels."""
    return sampled(replace(space, channels=4, cells=2 + i % 2), i, rng, shape)


def thin_nb101(_: Any, i: int, rng: Random, shape: Shape) -> Plan:
    return sampled(NB101(stem=4), i, rng, shape)


def thin_nats(_: Any, i: int, rng: Random, shape: Shape) -> Plan:
    return sampled(type("Thin", (NatsSSS,), {"choices": (2, 4, 6)})(), i, rng, shape)


def former(space: Any, i: int, rng: Random, shape: Shape) -> Plan:
    return sampled(replace(space, widths=(6, 8, 10), depths=(1, 2, 3), heads=(1, 2)), i, rng, shape)


def short_string(space: Any, i: int, rng: Random, shape: Shape) -> Plan:
    """A string of one to three narrow blocks."""
    first, *body, last = space.sample(rng)
    narrow = [b._replace(width=rng.choice((8, 16)), bottleneck=8, layers=1) for b in body[: 1 + i % 3]]
    plan: Plan = space.plan((first._replace(width=8), *narrow, last._replace(width=8)), CLASSES, shape)
    return plan


def shallow_mnasnet(space: Any, i: int, rng: Random, shape: Shape) -> Plan:
    """Stages of one layer but for one."""
    arch = [stage._replace(layers=1 + (at == i % 7)) for at, stage in enumerate(space.sample(rng))]
    plan: Plan = space.plan(tuple(arch), CLASSES, shape)
    return plan


def small_table(space: Any, i: int, rng: Random, shape: Shape) -> Plan:
    """Four dense features and three tables."""
    return sampled(replace(space, dense=4, tables=(5, 6, 7), widths=(4, 8), rows=(2, 3)), i, rng, shape)


ONE_CELL = ((nb101, "CELLS", 1), (nb101, "STAGES", 2), (nb1shot1, "BENCHMARK", NB101(stem=4)))
THIN_MODULES = ((transnas, "WIDTH", 4), (transnas, "BLOCKS", 1))
THIN_STAGES = (
    *((mnasnet, "STEM", 4), (mnasnet, "HEAD", 8), (mnasnet, "CHANNELS", (4, 4, 6, 6, 8, 8, 8))),
    (mnasnet, "STRIDES", (1, 2, 1, 1, 1, 1, 1)),
)
FAINT = (
    ("zen", "the nudge moves the last maps by 3e-10 of numbers near 1, which double precision gives to six digits"),
)
TABLE: dict[str, Row | str] = {
    "nb201": Row(sampled, patches=((nb201, "CELLS", 1), (nb201, "WIDTHS", (4, 6, 8)))),
    "nats_sss": Row(thin_nats),
    "nb101": Row(thin_nb101, patches=ONE_CELL),
    "nb101_stem16": "nb101",
    "nb1shot1_s1": Row(sampled, patches=ONE_CELL),
    "nb1shot1_s2": Row(sampled, patches=ONE_CELL),
    "nb1shot1_s3": Row(sampled, patches=ONE_CELL),
    "darts": "nb301",
    "darts_search": "nb301",
    "nb301": Row(of_cells),
    "nb301_naslib": Row(of_cells),
    "darts_imagenet": Row(of_cells, (3, 32, 32)),
    "transnas_micro": Row(sampled, (3, 16, 16), (*THIN_MODULES, (transnas, "MICRO_MODULES", (4, 1)))),
    "transnas_macro": Row(sampled, (3, 32, 32), THIN_MODULES),
    "transnas_micro_scene": "transnas_micro",
    "transnas_macro_scene": "transnas_macro",
    "transnas_micro_jigsaw": "none: its nine backbones share weights, and networks that do run one at a time",
    "transnas_macro_jigsaw": "none: its nine backbones share weights, and networks that do run one at a time",
    "decoder": "none: it has logits for every place of a row",
    "autoformer_tiny": Row(former, (3, 32, 32), has_scores=20),
    "autoformer_small": "autoformer_tiny",
    "autoformer_base": "autoformer_tiny",
    "resnet": Row(short_string, (3, 16, 16)),
    "mobilenet": Row(short_string, (3, 16, 16)),
    "mobilenet_16": "mobilenet",
    "mnasnet": Row(shallow_mnasnet, patches=THIN_STAGES),
    "mlp": Row(sampled, (12,), has_scores=15),
    "nasrec_full": Row(small_table, (7,), has_scores=15),
    "nasrec_small": Row(small_table, (7,), has_scores=15, without=FAINT),
}
"""by the name of a space: how it is made small, which other space it would be then, or why it has no populations"""
CACHED = (transnas._stem, transnas._lightest, mnasnet._stem, mnasnet._head)
"""caches of the constants that are changed here"""
ASKED = [precise(parse(FEW.get(name, name))) for name in proxies]


@pytest.fixture(autouse=True)
def no_memory() -> Any:
    for function in CACHED:
        function.cache_clear()
    yield
    for function in CACHED:
        function.cache_clear()


def row_of(name: str) -> Row | str:
    if name in TABLE or not isinstance(spaces[name], GivesPlans):
        return TABLE.get(name, "none: its networks are modules")
    native = native_of(spaces[name])
    return Row(sampled, native[0] if native and len(native[0]) != 3 else SMALL, has_scores=15)


def test_the_table_names_spaces() -> None:
    assert TABLE.keys() <= set(spaces)
    for row in TABLE.values():
        assert isinstance(row, Row) or row.startswith("none: ") or isinstance(TABLE[row], Row)


def test_networks_of_several_outputs_form_no_population() -> None:
    for name, row in TABLE.items():
        if isinstance(row, str) and row.startswith("none: "):
            shape = (6,) if takes_ids(spaces[name]) else (9, 3, 8, 8)
            plans = [spaces[name].plan(spaces[name].smallest(), CLASSES, shape) for _ in range(2)]
            assert not Population.fits([PlanNetwork(plan) for plan in plans])


@pytest.mark.parametrize("name", [name for name in spaces if isinstance(row_of(name), Row)])
def test_every_proxy_in(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row, rng = row_of(name), Random(name)
    assert isinstance(row, Row)
    for module, constant, value in row.patches:
        monkeypatch.setattr(module, constant, value)
    plans = [row.make(spaces[name], i, rng, row.shape) for i in range(max(SIZES))]
    assert len({plan.params for plan in plans}) > 1
    batch = data.load(
        "pink" if len(row.shape) == 3 else "white", input_shape=row.shape, num_classes=CLASSES, size=SAMPLES
    )
    asked = [proxy for proxy in ASKED if proxy.name not in dict(row.without)]
    members = [by_itself(plan, asked, batch) for plan in plans]
    scored = {text for member in members for text, score in member.scores.items() if score.ok}
    assert len(scored) >= row.has_scores, f"only {', '.join(scored)} have a score"
    for size in SIZES:
        check_same_in_a_population(name, rng.sample(members, size), asked, batch)
