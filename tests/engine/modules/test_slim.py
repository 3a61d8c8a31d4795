"""Slimmer versions of modules: sizes by hand, weights that stay, and everything that a space has."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import epochzero as ez
from epochzero.engine.modules.slim import SlimSpace
from epochzero.errors import UserError
from epochzero.testing import check_space
from tests.engine.modules import zoo
from tests.engine.modules.module_nets import seeded

IMAGES = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def _library() -> None:
    pytest.importorskip("torch_pruning")


def slimmed(make: Callable[[], nn.Module], data: Any = IMAGES, **options: Any) -> tuple[Any, SlimSpace]:
    module = seeded(make).eval()
    return module, ez.slim(module, data, **options)


def weights(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3))


def test_the_channels_of_the_least_norm_go() -> None:
    module, space = slimmed(two_layers, torch.randn(4, 6), widths=[0.5, 1.0])
    assert {space.text(arch) for arch in space} == {f"0={a}, 2={b}" for a in (4, 8) for b in (2, 4)}
    first, second, last = module[0], module[2], module[4]
    with torch.no_grad():  # the rows of weights and the columns that read them decide
        first.weight[:4] *= 9
        second.weight[:, :4] *= 9
    narrow: Any = ez.slim(module, torch.randn(4, 6), widths=[0.5, 1.0]).build(space.parse("0=4, 2=4"))
    assert torch.equal(narrow[0].weight, first.weight[:4]) and torch.equal(narrow[0].bias, first.bias[:4])
    assert torch.equal(narrow[2].weight, second.weight[:, :4]) and torch.equal(narrow[4].weight, last.weight)
    assert weights(space.build(space.smallest())) == 6 * 4 + 4 + 4 * 2 + 2 + 2 * 3 + 3


SPACES: dict[str, dict[str, list[int]]] = {
    "convolutional": {name: [8, 16] for name in ("0.0", "1.0.0", "2.0.0")},
    "residual": {"depth": [1, 2], "0.0": [8, 16], "depth.0.layers.0.0": [8, 16]},
    "inverted bottleneck": {"depth": [1, 2], "0.0": [8, 16], "depth.layers.0": [32, 64]},
    "ConvNeXt": {"depth": [1, 2], "0": [8, 16], "depth.layers.2": [32, 64]},
    "ViT": {"depth": [1, 2], "0": [8, 16], "depth.linear1": [16, 32]},
    "U-Net": {
        "stem.0": [8, 16],
        "down.0.0": [16, 32],
        "down.1.0": [32, 64],
        "up.0": [16, 32],
        "up.1": [8, 16],
        "join.0.0": [16, 32],
        "join.1.0": [8, 16],
    },
    "Swin": {"depth": [1, 2], "0": [8, 16], "depth.1.layers.1": [16, 32]},
}


@pytest.mark.parametrize("kind", SPACES)
def test_what_can_be_made_slimmer(kind: str) -> None:
    module, space = slimmed(lambda: zoo.KINDS[kind](16, 2), widths=[0.5, 1], depths=[0.5, 1])
    before = deepcopy(module.state_dict())
    assert space.factory.options == SPACES[kind]  # type: ignore[attr-defined]
    everything = space.build(space.parse(", ".join(f"{name}={max(own)}" for name, own in SPACES[kind].items())))
    with torch.no_grad():
        torch.testing.assert_close(everything.eval()(IMAGES), module(IMAGES))
    small = space.build(space.smallest())
    assert weights(small) < weights(module) / 1.5 and small(IMAGES).shape == (4, zoo.CLASSES)
    assert all(torch.equal(one, before[name]) for name, one in module.state_dict().items())


def test_blocks_that_are_left_out_pass_their_input_on() -> None:
    module, space = slimmed(lambda: zoo.KINDS["residual"](8, 3), widths=[1], depths=[0.3, 1])
    assert space.text(space.smallest()) == "depth=1"
    shallow, plain = space.build(space.smallest()), deepcopy(module)
    plain[2], plain[3] = nn.Identity(), nn.Identity()
    with torch.no_grad():
        torch.testing.assert_close(shallow(IMAGES), plain(IMAGES))


def test_attention_loses_whole_heads() -> None:
    """Slimmed heads give what the model gives without them: their columns in the output projection are zero."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = transformers.ViTConfig(**sizes, image_size=16, patch_size=4, num_labels=3)
    module, space = slimmed(lambda: transformers.ViTForImageClassification(config), widths=[0.5, 1])
    options = space.factory.options  # type: ignore[attr-defined]
    heads = "vit.layers.attention.q_proj"
    assert options[heads] == [16, 32] and options["vit.layers"] == [1, 2]
    narrow: Any = space.build(space.parse(", ".join(f"{n}={16 if n == heads else max(options[n])}" for n in options)))
    for one, other in zip(module.vit.layers, narrow.vit.layers, strict=True):
        mine, theirs = one.attention, other.attention
        kept = [h for h in range(4) if (mine.v_proj.weight[8 * h] == theirs.v_proj.weight[:, None]).all(-1).any()]
        assert theirs.q_proj.out_features == 16 and len(kept) == 2
        with torch.no_grad():
            for head in set(range(4)) - set(kept):
                mine.o_proj.weight[:, 8 * head : 8 * head + 8] = 0
    with torch.no_grad():
        torch.testing.assert_close(narrow(IMAGES).logits, module(IMAGES).logits)


def test_a_language_model_with_rotary_positions_keeps_its_attention() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    config = transformers.LlamaConfig(**sizes, vocab_size=30, max_position_embeddings=32)
    ids = {"input_ids": torch.randint(30, (4, 8), generator=torch.Generator().manual_seed(0))}
    _, space = slimmed(lambda: transformers.LlamaForCausalLM(config), ids, widths=[0.5, 1])
    assert set(space.names) == {"model.layers", "model.layers.mlp.gate_proj"}
    found = ez.search(space, "grad_norm", budget=3, data=ids, loss="next_token", max_params="3k")
    assert found.winner.score.ok and not found.unscored


def test_everything_that_a_space_has() -> None:
    _, space = slimmed(lambda: zoo.KINDS["residual"](8, 2), widths=[0.5, 1])
    check_space(space, samples=1, input_shape=(3, 16, 16))
    again = pickle.loads(pickle.dumps(space))
    assert again.name == space.name and list(again) == list(space)
    other = ez.slim(seeded(lambda: zoo.KINDS["residual"](8, 2), seed=1), IMAGES, widths=[0.5, 1])
    assert other.name != space.name  # other weights
    limit = weights(space.build(space.smallest())) * 2
    data = (IMAGES, torch.arange(4))
    found = ez.search(space, objectives="snip,-params", budget=6, data=data, batch_size=4, max_params=limit)
    assert found.front is not None and found.front.members


@pytest.mark.parametrize(
    ("make", "data", "options", "says"),
    [
        (lambda: nn.Linear(6, 3), torch.randn(4, 6), {}, "No part of Linear can be made slimmer"),
        (two_layers, torch.randn(4, 6), {"widths": [0.0, 1]}, "widths takes fractions above 0 and up to 1"),
        (two_layers, torch.randn(4, 6), {"depths": []}, "depths takes fractions above 0"),
        (two_layers, torch.randn(4, 7), {}, "The module cannot run on these data"),
    ],
)
def test_what_cannot_be_slimmed(make: Any, data: Tensor, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        ez.slim(make(), data, **options)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_pruning", None)
    with pytest.raises(UserError, match=r"Slimming needs torch_pruning: pip install 'epochzero\[slim\]'"):
        ez.slim(two_layers(), torch.randn(4, 6))
