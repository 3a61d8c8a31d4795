"""Sizes that are known from official code and papers, in all spaces: of the plan, and of the module that is built."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch

from epochzero.plan import Plan
from epochzero.registry import spaces
from epochzero.spaces.autoformer import Autoformer, Former
from epochzero.spaces.block_networks import zennas_flops, zennas_params
from epochzero.spaces.genotypes import GENOTYPES
from epochzero.spaces.nb101 import NB101
from epochzero.spaces.transnas import backbone
from tests.plan.test_codegen import network

HEAVY = 10_000_000
"""parameters beyond which the printed network is built, without memory for its numbers"""


class Check(NamedTuple):
    """The published numbers of one network."""

    what: str
    plan: Callable[[], Plan]
    params: int
    millions: float | None = None
    """multiply-accumulates, as far as they were printed; of block strings by ZenNAS's counter"""
    counted: int | None = None
    """parameters by ZenNAS's counter"""


def check(space: Any, arch: Any, params: int, *known: Any, **settings: Any) -> Check:
    """Of a space, by its name or itself, and a text or an architecture."""
    member = spaces[space] if isinstance(space, str) else space
    told = [member.name, arch if isinstance(arch, str) else "", *(f"{name}={settings[name]}" for name in settings)]
    made = member.parse(arch) if isinstance(arch, str) else arch
    return Check(" ".join(filter(None, told))[:90], partial(member.plan, made, **settings), params, *known)


def backbone_check(text: str, params: int) -> Check:
    """Of TransNAS, a network without its head, of any skeleton."""
    cell = None if text.endswith("basic") else spaces["transnas_micro"].parse(text)
    modules = tuple(map(int, text.split("-")[1]))
    return Check(f"transnas {text}", partial(backbone, modules, cell, (3, 256, 256)), params)


def largest(space: Autoformer) -> Former:
    return Former(max(space.widths), ((max(space.heads), max(space.ratios)),) * max(space.depths))


def former(width: int, heads: str, ratios: list[float]) -> Former:
    return Former(width, tuple(zip(map(int, heads.split()), ratios, strict=True)))


TINY, SMALL, BASE = (spaces[f"autoformer_{size}"] for size in ("tiny", "small", "base"))
AUTOFORMER_T = former(192, "3 3 3 3 3 3 3 3 3 3 4 3 3", [3.5, 3.5, 3, 3.5, 3, 3, 4, 4, 3.5, 4, 3.5, 4, 3.5])
AUTOFORMER_S = former(384, "6 6 5 7 5 5 5 6 6 7 7 6 7", [3, 3.5, 3, 3.5, 4, 4, 4, 4, 4, 4, 4, 3.5, 4])
AUTOFORMER_B = former(576, "9 9 9 9 9 10 9 9 10 9 10 9 9 10", [3.5, 3.5, 4, 3.5, 4, 3.5, 3.5, 3, 4, 4, 3, 4, 3, 3.5])

INCEPTION = "conv1x1:0/conv3x3:0/conv3x3:0/conv3x3:3/maxpool3x3:0/output:1245"
NARROW = NB101(stem=16)
ALL_3X3 = ("nor_conv_3x3",) * 6

MOBILE, RESNET = spaces["mobilenet"], spaces["resnet"]
ZICO_450M = (
    "SuperConvK3BNRELU(3,16,2,1)SuperResIDWE1K7(16,40,2,40,1)SuperResIDWE2K7(40,80,2,64,1)"
    "SuperResIDWE4K7(80,96,2,96,5)SuperResIDWE2K7(96,224,2,224,5)SuperConvK1BNRELU(224,2048,1,1)"
)
ZENNET_400M = (
    "SuperConvK3BNRELU(3,16,2,1)SuperResIDWE1K7(16,40,2,40,1)SuperResIDWE1K7(40,64,2,64,1)"
    "SuperResIDWE4K7(64,96,2,96,5)SuperResIDWE2K7(96,224,2,224,5)SuperConvK1BNRELU(224,2048,1,1)"
)
ZENNET_1M = (
    "SuperConvK3BNRELU(3,88,1,1)SuperResK1K7K1(88,120,1,16,1)SuperResK1K7K1(120,192,2,16,3)"
    "SuperResK1K5K1(192,224,1,24,4)SuperResK1K5K1(224,96,2,24,2)SuperResK1K3K1(96,168,2,40,3)"
    "SuperResK1K3K1(168,112,1,48,3)SuperConvK1BNRELU(112,512,1,1)"
)
"""Structures from the repositories SLDGroup/ZiCo (ZiCo/) and idstcv/ZenNAS (ZenNet/)."""

CHECKS = [
    check("nb101", INCEPTION, 2_694_282),
    check("nb101", "conv3x3:0/output:1", 10_177_674),
    check("nb101", "output:0", 882_570),
    check("nb101", "conv3x3:0/conv3x3:1/output:02", 20_346_506),
    check(NARROW, INCEPTION, 44_250),
    check(NARROW, "conv3x3:0/output:1", 161_178),
    check(NARROW, "output:0", 15_354),
    check(NARROW, "conv3x3:0/conv3x3:1/output:02", 321_242),
    check("nb201", ALL_3X3, 1_531_546, 220.12),
    check("nb201", ALL_3X3, 1_537_396, num_classes=100),
    check("nb201", ALL_3X3, 1_538_696, num_classes=120),
    check("nb201", (*ALL_3X3[:3], "skip_connect", *ALL_3X3[4:]), 1_288_506, 184.73),
    check("nb201", ("nor_conv_1x1",) * 6, 241_306, 7.783 + 6 * 5 * 3 * 0.262144),
    check("nb201", ("none",) * 6, 73_306, 7.78),
    check("nats_sss", "8:8:8:8:8", 11_714),
    check("nats_sss", "64:64:64:64:64", 713_674),
    check("nats_sss", "16:32:32:64:64", 316_346),
    check("darts", "DARTS_V2", 3_349_342),
    check("darts", "DARTS_V2", 3_825_768, auxiliary=True),
    check("darts", "DARTS_V2", 3_401_272, num_classes=100),
    check("darts_search", "DARTS_V2", 246_106),
    check("nb301", "DARTS_V2", 919_722),
    check("darts_imagenet", "DARTS_V2", 4_718_752),
    check("darts_imagenet", "DARTS_V2", 5_979_528, auxiliary=True),
    check("darts", "DARTS_V1", 3_169_414),
    check("darts_imagenet", "DARTS_V1", 4_510_432),
    check("darts", "NASNet", 3_830_950),
    check("darts", "AmoebaNet", 3_145_078),
    backbone_check("64-41414-3_33_333", 41_411_616),
    backbone_check("64-41414-2_22_222", 4_645_920),
    backbone_check("64-41414-1_11_111", 540_960),
    backbone_check("64-41414-0_00_000", 19_488),
    backbone_check("64-41414-basic", 13_990_688),
    backbone_check("64-111111-basic", 907_296),  # outside the space, since it keeps the size throughout
    check(TINY, TINY.smallest(), 5_366_056),
    check(TINY, largest(TINY), 10_517_272),
    check(TINY, AUTOFORMER_T, 5_867_944),  # has ratios of 3, outside its space
    check(SMALL, SMALL.smallest(), 13_057_320),
    check(SMALL, largest(SMALL), 34_790_440),
    check(SMALL, AUTOFORMER_S, 22_891_432),
    check(BASE, BASE.smallest(), 41_687_896),
    check(BASE, largest(BASE), 76_882_264),
    check(BASE, AUTOFORMER_B, 53_691_688),
    check("mobilenet", MOBILE.start, 2_824_264, 162.4),
    check("mobilenet", ZICO_450M, 5_741_264, 438.4),
    check("mobilenet", ZENNET_400M, 5_698_208, 400.0),
    check("mobilenet", ZENNET_400M, 7_466_024, squeeze=True),
    check("resnet", RESNET.start, 102_572, 6.55, 101_721, num_classes=100),
    check("resnet", ZENNET_1M, 1_040_844, 155.2, 1_031_185, num_classes=100),
    check("resnet", ZENNET_1M, 994_674, 155.2, 985_105, num_classes=10),
]


@pytest.mark.parametrize("known", CHECKS, ids=lambda known: known.what)
def test_known_sizes(known: Check) -> None:
    plan = known.plan()
    if known.params < HEAVY:
        built: torch.nn.Module = plan.module()
    else:
        with torch.device("meta"):
            built = network(plan.code())
    assert plan.params == sum(p.numel() for p in built.parameters()) == known.params
    if known.millions is not None:
        of_zennas = "Super" in known.what
        counted = zennas_flops(plan) if of_zennas else plan.flops
        assert counted / 1e6 == pytest.approx(known.millions, abs=0.05 if of_zennas else 0.005)
    if known.counted is not None:
        assert zennas_params(plan) == known.counted


@pytest.mark.parametrize(
    ("name", "millions"), [("DARTS_V2", 3.35), ("ENAS", 3.86), ("AmoebaNet", 3.15), ("NASNet", 3.83)]
)
def test_sizes_of_the_thesis(name: str, millions: float) -> None:
    """Its table 4.3, column C_0."""
    assert spaces["darts"].plan(GENOTYPES[name]).params / 1e6 == pytest.approx(millions, abs=0.005)
