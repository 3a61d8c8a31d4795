"""Layers that torch hides are seen; weights that are computed are named; new weights go by what they are used for."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence

import epochzero as ez
from epochzero import data
from epochzero.data import Batch
from epochzero.engine import Layer, parse
from epochzero.engine.modules.module_network import ModuleNetwork
from epochzero.registry import proxies
from epochzero.testing.proxies import close
from epochzero.types import Origin
from tests.engine.modules.any_nets import CLASSES, Attention, Recommender, Recurrent, ViT, WrittenOut
from tests.engine.modules.module_nets import Functional, Modular, seeded
from tests.engine.modules.test_any_module_table import clicks, words

OWN_WEIGHTS = [name for name in proxies if not any(need.run.init for need in parse(name).needs)]


@pytest.fixture(scope="module")
def batch() -> Batch:
    return data.pink((3, 16, 16), CLASSES, size=8)


def layers(module: nn.Module, batch: Batch, norm: Any = "train") -> list[Layer]:
    network, seen = ModuleNetwork(module, batch), list[Layer]()
    with torch.no_grad():
        network.forward(batch.part(0)[0], network.weights, norm, seen.append)
    return seen


def tell_apart(one: nn.Module, other: nn.Module, batch: Batch, asked: list[str]) -> list[str]:
    first, second = (ez.score(module, asked, data=batch) for module in (one, other))
    return [f"{name}: {first[name]} {second[name]}" for name in asked if not close(first[name], second[name], 1e-4)]


# Attention


@pytest.mark.parametrize("crossed", [False, True])
@pytest.mark.parametrize("weights", [False, True])
def test_multi_head_attention_scores_like_its_functional_rewrite(crossed: bool, weights: bool, batch: Batch) -> None:
    module = seeded(lambda: Attention(crossed, weights, batch_first=True))
    assert isinstance(module, Attention)
    assert tell_apart(module, WrittenOut(module), batch, OWN_WEIGHTS) == []
    assert ez.score(module, "snip,grasp,ntk_trace", data=batch)["grasp"].ok


def test_the_projections_are_layers_with_weights(batch: Batch) -> None:
    module = seeded(lambda: Attention(False, batch_first=True))
    seen = [
        (layer.kind, layer.weight, layer.weight_shape, tuple(layer.output.shape)) for layer in layers(module, batch)
    ]
    assert seen == [
        ("conv", "patches.weight", (8, 3, 4, 4), (8, 8, 4, 4)),
        ("linear", "attention.in_proj_weight", (24, 8), (8, 16, 24)),
        ("attention", None, (), (8, 2, 16, 4)),
        ("linear", "attention.out_proj.weight", (8, 8), (8, 16, 8)),
        ("activation", None, (), (8, 16, 8)),
        ("linear", "head.weight", (10, 8), (8, 10)),
    ]


class Masked(nn.Module):
    """Attention with everything that it takes."""

    def __init__(self, mask: str, **given: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(12, 3, **given)
        self.mask, self.first, self.given = mask, given.get("batch_first", False), given

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1).view(len(x), 8, 12)
        key = x[..., : self.given.get("kdim", 12)]
        value = x[..., : self.given.get("vdim", 12)]
        banned = torch.ones(8, 8, dtype=torch.bool, device=x.device).triu(1)
        masks: dict[str, dict[str, Tensor]] = {
            "none": {},
            "bool": {"attn_mask": banned},
            "float": {"attn_mask": banned.to(x.dtype) * -2},
            "each": {"attn_mask": banned.expand(3 * len(x), 8, 8)},
            "padding": {"key_padding_mask": torch.arange(8, device=x.device).expand(len(x), 8) > 5},
            "both": {
                "attn_mask": banned.to(x.dtype) * -2,
                "key_padding_mask": (torch.arange(8, device=x.device).expand(len(x), 8) > 5).to(x.dtype) * -3,
            },
        }
        inputs = (x, key, value) if self.first else (part.transpose(0, 1) for part in (x, key, value))
        out, weights = self.attention(*inputs, **masks[self.mask], average_attn_weights=False)
        out = out if self.first else out.transpose(0, 1)
        return torch.cat([out.flatten(1), weights.flatten(1)], 1)


@pytest.mark.parametrize("mask", ["none", "bool", "float", "each", "padding", "both"])
@pytest.mark.parametrize("given", [{}, {"batch_first": True, "bias": False}, {"kdim": 6, "vdim": 4}], ids=str)
def test_attention_in_the_open_gives_what_torch_gives(mask: str, given: dict[str, Any]) -> None:
    x = torch.randn(4, 96, generator=torch.Generator().manual_seed(0))
    module = seeded(lambda: Masked(mask, **given))
    network = ModuleNetwork(module, data.from_tensors(x))
    for norm in ("train", "eval"):
        torch.testing.assert_close(network.forward(x, network.weights, norm), module(x), rtol=1e-5, atol=1e-6)
    assert network.hides == ""


def test_the_fast_path_of_encoder_layers_is_not_taken(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(*_: Any, **__: Any) -> None:
        raise AssertionError("the fast path hides every layer")

    module = seeded(ViT).eval()
    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", taken)
    seen = [layer.weight for layer in layers(module, batch, "eval") if layer.kind == "linear"]
    inside = ["self_attn.in_proj_weight", "self_attn.out_proj.weight", "linear1.weight", "linear2.weight"]
    assert seen == [f"layers.{i}.{name}" for i in (0, 1) for name in inside] + ["head.weight"]


def test_attention_that_cannot_be_opened_is_named(batch: Batch) -> None:
    module = seeded(lambda: Attention(False, batch_first=True, add_zero_attn=True))
    found = ez.score(module, "snip,params,jacov", data=batch)
    assert found["snip"].status == "failed" and "nn.MultiheadAttention with added keys" in found["snip"].why
    assert found["params"].ok and found["jacov"].ok


def test_blocks_that_return_several_things_are_seen_by_the_first(batch: Batch) -> None:
    class Block(nn.Module):
        def __init__(self, wrapped: bool) -> None:
            super().__init__()
            self.conv, self.wrapped = nn.Conv2d(3, 3, 3, padding=1), wrapped

        def forward(self, x: Tensor) -> Any:
            x = torch.relu(self.conv(x))
            return (x, None) if self.wrapped else x

    class Net(nn.Module):
        def __init__(self, wrapped: bool) -> None:
            super().__init__()
            self.one, self.two, self.head = Block(wrapped), Block(wrapped), nn.Linear(3, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            for block in (self.one, self.two):
                x = block(x)[0] if block.wrapped else block(x)
            logits: Tensor = self.head(x.mean((2, 3)))
            return logits

    asked = ["az_expressivity", "az_progressivity", "az_trainability"]
    assert tell_apart(seeded(lambda: Net(True)), seeded(lambda: Net(False)), batch, asked) == []
    assert ez.score(seeded(lambda: Net(True)), asked, data=batch)["az_trainability"].ok


# Recurrent networks


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize(
    "given", [{}, {"bias": False, "num_layers": 2}, {"bidirectional": True, "num_layers": 2}], ids=str
)
@pytest.mark.parametrize("first", [True, False])
def test_recurrent_layers_in_the_open_give_what_torch_gives(kind: Any, given: dict[str, Any], first: bool) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = kind(3, 4, batch_first=first, **given)

        def forward(self, x: Tensor) -> Tensor:
            out, state = self.layer(x if first else x.transpose(0, 1))
            states = torch.cat([part.transpose(0, 1).flatten(1) for part in state], 1) if kind is nn.LSTM else state[-1]
            return torch.cat([(out if first else out.transpose(0, 1)).flatten(1), states], 1)

    x, module = torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(0)), seeded(Net)
    network = ModuleNetwork(module, data.from_tensors(x))
    torch.testing.assert_close(network.forward(x, network.weights, "train"), module(x), rtol=1e-5, atol=1e-6)
    assert set(network.layer_weights) == {name for name, p in module.named_parameters() if p.dim() == 2}


def test_packed_sequences_are_named() -> None:
    class Packed(Recurrent):
        def forward(self, words: Tensor) -> Tensor:
            packed = pack_padded_sequence(self.words(words), torch.full((len(words),), 6), batch_first=True)
            logits: Tensor = self.head(self.layers(packed)[1][0][-2:].transpose(0, 1).flatten(1))
            return logits

    found = ez.score(seeded(Packed), "snip,params,ntk_trace", data=words())
    assert found["snip"].status == "failed" and "nn.LSTM on packed sequences" in found["snip"].why
    assert found["params"].ok and found["ntk_trace"].ok


# Embeddings


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
@pytest.mark.parametrize("given", [{"sparse": True}, {"max_norm": 0.5}], ids=str)
def test_embeddings_with_sparse_gradients_or_bounded_rows(kind: Any, given: dict[str, Any]) -> None:
    """A bounded table shortens its rows when they are looked up: not in the user's module."""

    class Net(nn.Module):
        def __init__(self, **options: Any) -> None:
            super().__init__()
            self.table, self.head = kind(20, 6, **options), nn.Linear(6, CLASSES)

        def forward(self, ids: Tensor) -> Tensor:
            found = self.table(ids)
            logits: Tensor = self.head(torch.relu(found if found.dim() == 2 else found.mean(1)))
            return logits

    module, asked = seeded(lambda: Net(**given)), ["snip", "ntk_trace", "sigeo(weights=1/1/1)", "knas", "fisher"]
    before = module.get_parameter("table.weight").detach().clone()
    found = ez.score(module, asked, data=words())
    assert {name: score.why for name, score in found.items() if not score.ok} == {}
    assert torch.equal(module.get_parameter("table.weight"), before)
    if "sparse" in given:
        assert found == ez.score(seeded(Net), asked, data=words())
    else:
        module(words().part(0)[0].long())  # the user's own run does shorten them
        assert found["snip"].value == pytest.approx(ez.score(module, "snip", data=words())["snip"].value, rel=1e-5)


# Weights that are computed


def old_style(name: str) -> Callable[[nn.Module], nn.Module]:
    def wrap(layer: nn.Module) -> nn.Module:
        if name == "spectral_norm":
            return nn.utils.spectral_norm(layer)
        with pytest.warns(FutureWarning, match="deprecated"):
            return nn.utils.weight_norm(layer)

    return wrap


@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm"])
@pytest.mark.parametrize("old", [True, False])
def test_a_computed_weight_is_named_and_the_module_left_as_it_was(name: str, old: bool, batch: Batch) -> None:
    wrap = old_style(name) if old else getattr(parametrizations, name)
    module = seeded(lambda: nn.Sequential(wrap(nn.Conv2d(3, 4, 3)), nn.ReLU(), nn.Flatten(), nn.Linear(784, CLASSES)))
    before = {key: value.clone() for key, value in module.state_dict().items()}
    attributes = [dict(vars(part)) for part in module.modules()]
    found = ez.score(module, ["snip", "l2_norm", "synflow", "naswot", "jacov", "params", "ntk_trace"], data=batch)
    for proxy in ("snip", "l2_norm", "synflow"):
        assert found[proxy].status == "failed" and f"{name} of '0'" in found[proxy].why
    assert all(found[proxy].ok for proxy in ("naswot", "jacov", "params", "ntk_trace"))
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    for part, then in zip(module.modules(), attributes, strict=True):
        assert vars(part).keys() == then.keys() and all(vars(part)[key] is value for key, value in then.items())


def test_another_computed_weight(batch: Batch) -> None:
    class Halved(Modular):
        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(F.conv2d(x, self.conv1.weight / 2, padding=1))
            x = self.relu(self.norm2(self.conv2(x)))
            logits: Tensor = self.head(self.flat(self.pool(x)))
            return logits

    found = ez.score(seeded(Halved), "snip,naswot", data=batch)
    assert "the weight of a conv2d layer is computed as the network runs" in found["snip"].why
    assert found["naswot"].ok


# Products


class Products(nn.Module):
    """A linear layer in each way in which people multiply by a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.randn(12, 6) / 4)
        self.two = nn.Parameter(torch.randn(5, 6) / 4)
        self.three = nn.Parameter(torch.randn(5, 7) / 4)
        self.shift = nn.Parameter(torch.randn(7))
        self.four = nn.Parameter(torch.randn(8, 7) / 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(x @ self.one)
        x = torch.relu(torch.matmul(x, self.two.t()))
        x = torch.relu(torch.addmm(self.shift, x, self.three))
        return torch.einsum("bi,oi->bo", x, self.four)


class AsLayers(nn.Module):
    """The same with linear layers."""

    def __init__(self, other: Products) -> None:
        super().__init__()
        self.one, self.two = nn.Parameter(other.one.detach().t()), nn.Parameter(other.two.detach())
        self.three, self.four = nn.Parameter(other.three.detach().t()), nn.Parameter(other.four.detach())
        self.shift = nn.Parameter(other.shift.detach())

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(F.linear(torch.relu(F.linear(x, self.one)), self.two))
        return F.linear(torch.relu(F.linear(x, self.three, self.shift)), self.four)


def test_a_product_with_a_weight_is_a_linear_layer() -> None:
    module, chance = seeded(Products), torch.Generator().manual_seed(0)
    assert isinstance(module, Products)
    table = data.from_tensors(torch.randn(32, 12, generator=chance), torch.arange(32) % 8, parts=4)
    assert tell_apart(module, AsLayers(module), table, [name for name in OWN_WEIGHTS if name != "tf_tas"]) == []
    network = ModuleNetwork(module, table)
    assert network.layer_weights == ("one", "two", "three", "four")
    new = network.redrawn(Origin("kaiming", 0))
    assert (new["shift"] == 0).all()
    for name, inputs in (("one", 12), ("two", 6), ("three", 5)):
        assert new[name].std().item() == pytest.approx((2 / inputs) ** 0.5, rel=0.2)


# New weights


def test_new_weights_go_by_their_use(batch: Batch) -> None:
    """In a functional network the names say nothing."""
    modular = seeded(Modular)
    assert isinstance(modular, Modular)
    new = ModuleNetwork(Functional(modular), batch).redrawn(Origin("normal", 0))
    assert all((new[name] == 1).all() for name in ("scale1", "scale2"))
    assert all((new[name] == 0).all() for name in ("b1", "shift1", "shift2", "b3"))
    assert all(0.8 < new[name].std() < 1.2 for name in ("w1", "w2", "w3"))


def test_new_weights_of_attention_recurrent_layers_and_tables(batch: Batch) -> None:
    vit = ModuleNetwork(seeded(ViT), batch)
    new = vit.redrawn(Origin("kaiming", 0))
    inside = "layers.0.self_attn.in_proj"
    assert (new[f"{inside}_bias"] == 0).all() and (new["layers.0.norm1.weight"] == 1).all()
    assert new[f"{inside}_weight"].std().item() == pytest.approx((2 / 8) ** 0.5, rel=0.2)
    assert torch.equal(new["positions"], vit.weights["positions"]) and torch.equal(new["token"], vit.weights["token"])
    tables = ModuleNetwork(seeded(Recommender), clicks()).redrawn(Origin("kaiming", 0))
    assert 0.7 < tables["tables.0.weight"].std() < 1.3
    recurrent = ModuleNetwork(seeded(Recurrent), words()).redrawn(Origin("normal", 0))
    assert (recurrent["layers.bias_hh_l1_reverse"] == 0).all() and recurrent["layers.weight_hh_l0"].std() > 0.8


def test_a_norm_that_is_written_by_hand(batch: Batch) -> None:
    class ChannelNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.full((8,), 3.0)), nn.Parameter(torch.ones(8))

        def forward(self, x: Tensor) -> Tensor:
            x = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)
            return x * self.weight[:, None, None] + self.bias[:, None, None]

    module = nn.Sequential(nn.Conv2d(3, 8, 3), ChannelNorm(), nn.Flatten(), nn.Linear(8 * 196, CLASSES))
    new = ModuleNetwork(module, batch).redrawn(Origin("normal", 0))
    assert (new["1.weight"] == 1).all() and (new["1.bias"] == 0).all()


# Randomness


class Chancy(Modular):
    """Dropout, and chance from torch, Python and numpy."""

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(self.relu(self.norm1(self.conv1(x))), 0.3, self.training)
        x = x + 0.1 * torch.randn_like(x) * random.random() + 0.1 * float(np.random.rand())
        x = self.relu(self.norm2(self.conv2(x)))
        logits: Tensor = self.head(self.flat(self.pool(x)))
        return logits


@pytest.mark.parametrize("make", [Chancy, lambda: Attention(False, True, batch_first=True, dropout=0.4)])
def test_chance_is_seeded_whoever_asks_and_put_back(make: Callable[[], nn.Module], batch: Batch) -> None:
    module, asked = seeded(make), ["snip", "jacov", "grasp", "naswot", "curvature", "fmi"]
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[index]
    first = ez.score(module, asked, data=batch)
    assert random.getstate() == states[0] and torch.equal(torch.get_rng_state(), states[2])
    assert np.random.get_state()[1].tolist() == states[1]  # type: ignore[index]
    random.seed(9)
    torch.manual_seed(9)
    assert ez.score(module, asked, data=batch) == first
    for name in asked:
        assert close(ez.score(module, [name], data=batch)[name], first[name]), name
    other = ez.score(module, ["snip"], data=batch, seed=1)
    assert other["snip"].value != pytest.approx(first["snip"].value, rel=1e-6)
