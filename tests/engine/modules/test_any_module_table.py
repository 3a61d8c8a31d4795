"""Every proxy on networks of every family: a finite value or a reason, and which of the two is written down here."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import epochzero as ez
from epochzero import data
from epochzero.data import Batch
from epochzero.registry import proxies
from epochzero.testing.proxies import close
from epochzero.types import Score
from tests.engine.modules.any_nets import (
    CLASSES,
    DENSE,
    ROWS,
    TABLES,
    TIME,
    WORDS,
    Language,
    Recommender,
    Recurrent,
    ViT,
    residual,
)
from tests.engine.modules.module_nets import seeded

ALL = sorted(proxies)
SIZE = 16


def labels(count: int = 4 * SIZE, classes: int = CLASSES) -> Tensor:
    return torch.randint(classes, (count,), generator=torch.Generator().manual_seed(1))


def images() -> Batch:
    return data.pink((3, 16, 16), CLASSES, size=SIZE)


def words() -> Batch:
    tokens = torch.randint(WORDS, (4 * SIZE, TIME), generator=torch.Generator().manual_seed(2))
    return data.from_tensors(tokens, labels(), num_classes=CLASSES, parts=4)


def clicks() -> Batch:
    chance = torch.Generator().manual_seed(3)
    dense = torch.randn(4 * SIZE, DENSE, generator=chance)
    ids = torch.randint(ROWS, (4 * SIZE, TABLES, 2), generator=chance)
    return data.from_tensors({"dense": dense, "ids": ids}, labels(classes=2), parts=4)


BLOCKS = dict.fromkeys(["az_expressivity", "az_progressivity", "az_trainability"], "at least two blocks")
MAPS = dict.fromkeys(["dextr", "dextr_opt", "fmi", "meco", "meco_opt", "zen"], "no layer has an output with channels")
NO_RELU = dict.fromkeys(["linear_regions", "lswag", "naswot", "swap", "swap_reg"], "no ReLU")
NO_RELU_MAPS = dict.fromkeys(["lswag", "swap", "swap_reg"], "no ReLU on feature maps or tokens")
NO_TRANSFORMER = dict.fromkeys(["tf_tas", "wpca"], "is for transformers")
NO_GELU = {"wpca": "no ReLU, GELU or the like works on tokens"}
TWINS = {"naswot": "share a code"}
"""a few ReLUs fire alike on two of the samples"""

NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Batch], dict[str, str]]] = {
    "residual": (residual, images, NO_TRANSFORMER),
    "attention": (ViT, images, {}),
    "recommender": (Recommender, clicks, BLOCKS | MAPS | NO_RELU_MAPS | NO_TRANSFORMER | TWINS),
    "lstm": (Recurrent, words, BLOCKS | NO_GELU | NO_RELU),
    "gru": (lambda: Recurrent(nn.GRU), words, BLOCKS | NO_GELU | NO_RELU),
    "tied": (Language, words, BLOCKS | NO_GELU | MAPS | NO_RELU_MAPS | TWINS),
}
"""each with its data, and the proxies that do not apply with what they should say"""


def scores(name: str, asked: list[str] = ALL, seed: int = 0) -> dict[str, Score]:
    make, batch, _ = NETWORKS[name]
    return ez.score(seeded(make), asked, data=batch(), seed=seed)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_proxy_has_a_value_or_the_expected_reason(name: str) -> None:
    found, reasons = scores(name), NETWORKS[name][2]
    assert {proxy: score.why for proxy, score in found.items() if not score.ok and proxy not in reasons} == {}
    assert {proxy: found[proxy] for proxy, why in reasons.items() if why not in found[proxy].why} == {}
    assert all(math.isfinite(score.value) for score in found.values() if score.ok)
    for proxy in ("snip", "grad_norm", "fisher", "grasp", "ntk_trace", "zico", "l2_norm", "flops", "params"):
        assert found[proxy].value != 0, f"{proxy} is silently zero"


@pytest.mark.parametrize("name", ["attention", "recommender", "lstm"])
def test_alone_or_together(name: str) -> None:
    together = scores(name)
    for proxy in ("fmi", "naswot", "snip", "grasp", "jacov", "ntk_trace", "zen"):
        assert close(scores(name, [proxy])[proxy], together[proxy]), proxy


# Slow and obvious


def loss_gradients(module: nn.Module, batch: Batch, names: list[str]) -> list[tuple[Tensor, Tensor]]:
    """Weights with the gradients that plain autograd gives, of a module called as its user would."""
    x, y = batch.part(0)
    assert y is not None
    args, named = ((x,), {}) if batch.layout is None else batch.layout.unpack(x)
    module.train()
    weights = [module.get_parameter(name) for name in names]
    gradients = torch.autograd.grad(F.cross_entropy(module(*args, **named), y), weights)
    return list(zip((w.detach() for w in weights), gradients, strict=True))


def of_matrices(module: nn.Module, but: tuple[str, ...] = ()) -> list[str]:
    """All weights of conv, linear, attention and recurrent layers; not embeddings, positions, norms and biases."""
    return [name for name, p in module.named_parameters() if p.dim() > 1 and not name.startswith(but)]


@pytest.mark.parametrize(
    ("name", "but"),
    [
        ("residual", ("none",)),
        ("attention", ("token", "positions")),
        ("recommender", ("tables",)),
        ("lstm", ("words",)),
        ("gru", ("words",)),
        ("tied", ("none",)),
    ],
)
def test_gradients_are_those_of_plain_autograd(name: str, but: tuple[str, ...]) -> None:
    make, batch, _ = NETWORKS[name]
    module = seeded(make)
    pairs = loss_gradients(module, batch(), of_matrices(module, but))
    found = ez.score(seeded(make), "snip,grad_norm,l2_norm,params", data=batch())
    assert found["snip"].value == pytest.approx(sum((w * g).abs().sum().item() for w, g in pairs), rel=1e-4)
    assert found["grad_norm"].value == pytest.approx(sum(g.norm().item() for _, g in pairs), rel=1e-4)
    assert found["l2_norm"].value == pytest.approx(sum(w.norm().item() for w, _ in pairs), rel=1e-5)
    assert found["params"].value == sum(p.numel() for p in module.parameters())


def test_the_responses_of_a_recommender_are_to_its_numbers_alone() -> None:
    """Jacov by hand: the gradient of each sample for the dense inputs, ids as they are."""
    module, batch = seeded(Recommender), clicks()
    assert batch.layout is not None
    inputs = batch.layout.unpack(batch.part(0)[0])[1]
    dense = inputs["dense"].requires_grad_()
    rows = torch.autograd.grad(module(dense, inputs["ids"]).sum(), dense)[0].double()
    eigenvalues = torch.linalg.eigvalsh(torch.corrcoef(rows)) + 1e-5
    expected = -(eigenvalues.log() + 1 / eigenvalues).sum().item()
    assert ez.score(module, "jacov", data=batch)["jacov"].value == pytest.approx(expected, rel=1e-3)


def test_flops_by_hand() -> None:
    width, tokens, hidden = 8, 17, 16
    projections = tokens * (3 * width * width + width * width + 2 * width * hidden)
    attention = 2 * tokens * tokens * width
    patches = 16 * width * 3 * 16
    assert scores("attention", ["flops"])["flops"].value == patches + 2 * (projections + attention) + width * CLASSES
    first, second = 4 * 5 * (6 + 5), 4 * 5 * (10 + 5)
    assert scores("lstm", ["flops"])["flops"].value == TIME * 2 * (first + second) + 10 * CLASSES
