"""tf_tas against autograd and numpy's nuclear norms on a small transformer."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from epochzero.data import Batch
from epochzero.engine import parse, score_network
from epochzero.engine.modules.module_network import ModuleNetwork
from epochzero.types import Score
from tests.proxies.nets import CLASSES, IMAGE, layerless_net, linear_net, random_batch, score, value

WIDTH = 6


class Transformer(nn.Module):
    """Patches, blocks of one attention head and two linear layers, the mean of the tokens, a head."""

    def __init__(
        self, ratio: int = 2, runs: int = 1, norms: bool = False, cut: str = "", seed: int = 0, heads: int = WIDTH
    ) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.embed = nn.Conv2d(IMAGE[0], WIDTH, 3, 3)
            self.place = nn.Parameter(torch.randn(4, WIDTH))
            self.norm = nn.LayerNorm(WIDTH) if norms else nn.Identity()
            self.qkv = nn.Linear(WIDTH, 3 * heads)
            self.proj = nn.Linear(heads, WIDTH)
            self.fc1 = nn.Linear(WIDTH, ratio * WIDTH)
            self.fc2 = nn.Linear(ratio * WIDTH, WIDTH)
            self.head = nn.Linear(WIDTH, CLASSES)
        self.runs, self.cut = runs, cut

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2) + self.place  # [B, 4, WIDTH]
        for _ in range(self.runs):
            q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
            x = x + self.proj(torch.softmax(q @ k.mT / WIDTH**0.5, -1) @ v)
            within = self.fc2(torch.relu(self.fc1(self.norm(x))))
            x = x + (within * 0 if self.cut == "mlp" else within)
        x = self.norm(x).mean(1)
        logits: Tensor = self.head(x * 0 if self.cut == "all" else x)
        return logits


def scored(module: nn.Module, batch: Batch | None = None) -> Score:
    batch = batch or random_batch()
    return score_network(ModuleNetwork(module, batch), [parse("tf_tas")], batch, 0).scores["tf_tas"]


def nuclear(matrix: Tensor) -> float:
    return float(np.linalg.svd(matrix.detach().numpy(), compute_uv=False).sum())


def flow(module: nn.Module) -> tuple[nn.Module, Tensor]:
    """The module with absolute weights, and the sum of its logits for an image of ones."""
    positive = copy.deepcopy(module).double()
    with torch.no_grad():
        for p in positive.parameters():
            p.abs_()
    return positive, positive(torch.ones(1, *IMAGE, dtype=torch.float64)).sum()


def oracle(module: Transformer) -> float:
    positive, summed = flow(module)
    torch.autograd.backward(summed)
    total = 0.0
    for name in ("qkv", "proj", "fc1", "fc2", "head"):
        weight = positive.get_submodule(name).weight
        assert isinstance(weight, Tensor)
        assert weight.grad is not None
        if name in ("qkv", "proj"):
            total += nuclear(weight.grad) * nuclear(weight)
        else:
            total += (weight.grad * weight).abs().sum().item()
    return math.log(total)


def test_by_hand() -> None:
    # W = diag(3, -4), absolute and with ones as input: R = 7, dR/dW all ones, nuclear norms 7 and 2.
    network = linear_net([[3.0, 0.0], [0.0, -4.0]])
    assert value(network, "tf_tas", random_batch((2,))) == pytest.approx(math.log(14), rel=1e-9)
    # A head (1, 2) after it: R = 3 + 8, dR/dW = (1, 2)^T (1, 1) of nuclear norm sqrt(10); the head adds R itself.
    network = linear_net([[3.0, 0.0], [0.0, -4.0]], [[1.0, 2.0]])
    expected = math.log(7 * math.sqrt(10) + 11)
    assert value(network, "tf_tas", random_batch((2,))) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("ratio", [1, 2, 4])
@pytest.mark.parametrize("runs", [1, 2])
def test_is_autograd_and_nuclear_norms(ratio: int, runs: int) -> None:
    """A block that runs twice has its weights once. With ratio 1 the two linear layers look like projections."""
    module = Transformer(ratio, runs)
    if ratio > 1:
        assert scored(module).value == pytest.approx(oracle(module), rel=1e-9)
    else:
        assert scored(module).value > oracle(module)


def test_linear_layers_three_times_as_wide_are_no_attention() -> None:
    """They have the shape of queries, keys and values, but no projection comes next."""
    module = Transformer(ratio=3)
    assert module.fc1.weight.shape == module.qkv.weight.shape
    assert scored(module).value == pytest.approx(oracle(module), rel=1e-9)


@pytest.mark.parametrize("heads", [4, 9, 2 * WIDTH])
def test_heads_may_be_wider_or_narrower_than_tokens(heads: int) -> None:
    module = Transformer(heads=heads)
    assert scored(module).value == pytest.approx(oracle(module), rel=1e-9)


def test_layer_norms_may_turn_the_sign_of_the_flow() -> None:
    """The paper's score has no logarithm of R: gradients and weights alone decide."""
    signs = set()
    for seed in range(6):
        module = Transformer(norms=True, seed=seed)
        signs.add(bool(flow(module)[1] > 0))
        assert scored(module).value == pytest.approx(oracle(module), rel=1e-6)
    assert signs == {True, False}


def test_no_data_is_read() -> None:
    module = Transformer()
    assert scored(module, random_batch(seed=1)) == scored(module, random_batch(seed=2))


def test_a_dead_path_adds_nothing() -> None:
    dead, live = Transformer(cut="mlp"), Transformer()
    assert scored(dead).value == pytest.approx(oracle(dead), rel=1e-9)
    assert scored(dead).value < scored(live).value


def test_a_cut_network() -> None:
    found = scored(Transformer(cut="all"))
    assert found.status == "degenerate"
    assert "no signal flows" in found.why


def test_networks_without_attention() -> None:
    convolutional = nn.Sequential(nn.Conv2d(2, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
    found = scored(convolutional)
    assert found.status == "degenerate"
    assert "for transformers" in found.why
    found = score(layerless_net(), "tf_tas", random_batch((3, 6, 6)))
    assert found.status == "degenerate"
    assert "conv or linear layer" in found.why
