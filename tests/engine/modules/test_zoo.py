"""Sixty modules of twelve kinds: every proxy has a value or a reason, and the reasons are written down here."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import epochzero as ez
from epochzero import data
from epochzero.data import Batch
from epochzero.registry import proxies
from tests.engine.modules import zoo
from tests.engine.modules.module_nets import seeded

ALL = sorted(proxies)
NO_BLOCKS = dict.fromkeys(["az_expressivity", "az_progressivity", "az_trainability"], "at least two blocks")
NO_TOKENS = dict.fromkeys(["tf_tas", "wpca"], "is for transformers")
NO_RELU = dict.fromkeys(["linear_regions", "lswag", "naswot", "swap", "swap_reg"], "no ReLU")
REASONS: dict[str, dict[str, str]] = {
    **dict.fromkeys(["convolutional", "residual", "dense", "inverted bottleneck"], NO_TOKENS),
    "squeeze-excite": {**NO_TOKENS, "grasp": "derivative for aten::hardsigmoid_backward is not implemented"},
    "ConvNeXt": NO_TOKENS,
    "ViT": {},
    "Swin": {"vkdnw": "its layers give 16x16 and 64x64 values, which do not add up, as with windows"},
    "mixer": {"tf_tas": "no linear layer here has the shape"},
    "U-Net": NO_TOKENS,
    "recurrent": NO_TOKENS | NO_BLOCKS | NO_RELU,
    "causal LM": dict.fromkeys(["epe_nas", "hnas", "ntk_cond", "ntk_trace"], "needs class labels"),
}
SHALLOW = {"ConvNeXt": NO_BLOCKS, "ViT": NO_BLOCKS, "U-Net": NO_BLOCKS}
"""those of one block"""
SQUARE = ("recurrent", (16, 1))
"""48 gates of 48 inputs: a square layer counts as attention, as the card of tf_tas says"""


def given(kind: str) -> tuple[Batch, dict[str, Any]]:
    """Data, and options of `score`."""
    if kind != "causal LM":
        return data.pink((3, zoo.SIDE, zoo.SIDE), zoo.CLASSES, size=16), {}
    words = torch.randint(zoo.WORDS, (64, zoo.TIME), generator=torch.Generator().manual_seed(2))
    return data.from_tensors(words, words.roll(-1, 1), parts=4, targets=True), {"loss": "next_token"}


@pytest.mark.parametrize("size", zoo.SIZES, ids=str)
@pytest.mark.parametrize("kind", sorted(zoo.KINDS))
def test_every_proxy_has_a_value_or_the_expected_reason(kind: str, size: tuple[int, int]) -> None:
    batch, options = given(kind)
    scores = ez.score(seeded(lambda: zoo.KINDS[kind](*size)), ALL, data=batch, **options)
    assert set(scores) == set(ALL)
    expected = REASONS[kind] | (SHALLOW.get(kind, {}) if size[1] == 1 else {})
    if (kind, size) == SQUARE:
        expected = {name: why for name, why in expected.items() if name != "tf_tas"}
    whys = {name: score.why for name, score in scores.items() if not score.ok}
    assert whys.keys() == expected.keys(), whys
    assert {name: whys[name] for name, why in expected.items() if why not in whys[name]} == {}
    assert all(math.isfinite(score.value) for score in scores.values() if score.ok)
