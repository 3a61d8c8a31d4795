"""Losses of other targets than class labels: by hand, in scores, and the reasons where there are none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import epochzero as ez
from epochzero import data
from epochzero.engine.loss import LOSSES, with_loss
from epochzero.errors import DataError, UserError
from epochzero.registry import proxies
from tests.command import epochzero

RNG = torch.Generator().manual_seed(0)
X = torch.randn(64, 5, generator=RNG)
IMAGES = torch.randn(32, 3, 8, 8, generator=RNG)
MASKS = torch.randint(4, (32, 8, 8), generator=RNG)
IDS = torch.randint(11, (16, 7), generator=RNG)


def regressor(outputs: int = 1) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, outputs))


def segmenter() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1))


class Language(nn.Module):
    """A small language model, with the output of those of Hugging Face."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layer = nn.Embedding(11, 8), nn.TransformerEncoderLayer(8, 2, 16, dropout=0, batch_first=True)
        self.head = nn.Linear(8, 11)

    def forward(self, input_ids: Tensor) -> dict[str, Any]:
        x = self.embed(input_ids)
        return {"hidden_states": (x,), "past": x, "logits": self.head(self.layer(x))}


# ---- the formulas


def test_by_hand() -> None:
    outputs, targets = torch.tensor([[1.0, 2.0], [0.0, 4.0]]), torch.tensor([[0.0, 0.0], [0.0, 1.0]])
    assert LOSSES["mse"](outputs, targets).tolist() == [2.5, 4.5]
    expected = [(F.softplus(torch.tensor(1.0)) + F.softplus(torch.tensor(2.0))).item() / 2]
    assert LOSSES["binary"](outputs, targets)[:1].tolist() == pytest.approx(expected)
    single = LOSSES["mse"](torch.tensor([[3.0], [5.0]]), torch.tensor([1.0, 5.0]))  # [B, 1] and [B]
    assert single.tolist() == [4.0, 0.0]


def test_tokens_and_places_that_do_not_count() -> None:
    logits, ids = torch.randn(2, 4, 5, generator=RNG), torch.tensor([[0, 1, 2, 3], [4, 0, -100, -100]])
    each = [F.cross_entropy(logits[0, :3], ids[0, 1:]), F.cross_entropy(logits[1, :1], ids[1, 1:2])]
    torch.testing.assert_close(LOSSES["next_token"](logits, ids), torch.stack(each))


# ---- in scores

CASES: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "mse": (regressor, (X, X.sum(1))),
    "binary": (lambda: regressor(2), (X, (X[:, :2] > 0).float())),
    "segmentation": (segmenter, (IMAGES, MASKS)),
    "next_token": (Language, {"input_ids": IDS}),
}


@pytest.mark.parametrize("name", CASES)
def test_every_proxy_has_a_score_or_a_reason(name: str) -> None:
    make, given = CASES[name]
    scores = ez.score(make(), list(proxies), data=given, loss=name)
    assert all(score.ok or score.why for score in scores.values())
    assert scores["snip"].ok and scores["grad_norm"].ok and scores["grasp"].ok
    for labelled in ("hnas", "ntk_trace"):
        assert scores[labelled].status == "failed"
        assert scores[labelled].why == f"needs class labels, which the targets of the loss {name} are not"


def test_the_gradient_is_that_of_the_loss() -> None:
    module, y = regressor(), X.sum(1, keepdim=True)
    torch.autograd.backward(F.mse_loss(module(X), y))
    norm = sum(
        float(p.grad.norm()) for n, p in module.named_parameters() if n.endswith("weight") and p.grad is not None
    )
    module.zero_grad()
    for loss in ("mse", F.mse_loss, nn.MSELoss(), lambda out, target: (out - target).square().mean(1)):
        assert ez.score(module, "grad_norm", data=(X, y), loss=loss)["grad_norm"].value == pytest.approx(norm, rel=1e-4)


def test_a_loss_of_the_mean_counts_for_each_sample() -> None:
    """The kernel's rows are single samples, of which a function that returns one number is asked for each."""
    asked = ["knas(variant=reference)", "grasp"]
    named = ez.score(regressor(), asked, data=(X, X[:, :1]), loss="mse")
    own = ez.score(regressor(), asked, data=(X, X[:, :1]), loss=F.mse_loss)
    for text in asked:
        assert own[text].value == pytest.approx(named[text].value, rel=1e-4)


def test_one_output_may_lack_its_dimension() -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = regressor()

        def forward(self, x: Tensor) -> Tensor:
            outputs: Tensor = self.inner(x)
            return outputs[:, 0]

    for loss in ("mse", F.mse_loss):  # which would broadcast [B, 1] and [B]
        scores = [ez.score(net, "snip", data=(X, X.sum(1)), loss=loss)["snip"] for net in (regressor(), Flat())]
        assert scores[0] == scores[1] == ez.score(regressor(), "snip", data=(X, X.sum(1)[:, None]), loss="mse")["snip"]


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        (lambda out, y: out.sum() * torch.nan, " is nan"),
        (lambda out, y: out.detach().mean(), " is not differentiable: it is cut off from the network's output"),
        (lambda out, y: torch.zeros(3), " should be one number, or one for each sample, and is [3]"),
        (lambda out, y: 3.0, " should be one number, or one for each sample, and is float"),
        (lambda out, y: out.nothing, " raised AttributeError: 'Tensor' object has no attribute 'nothing'"),
        ("binary", "the targets are [64, 3], and the output is [64, 1]"),
        ("segmentation", "the targets are [64, 3], and the output is [64, 1]"),
    ],
)
def test_a_loss_that_cannot_be_used_is_a_reason(loss: Any, says: str) -> None:
    scores = ez.score(regressor(), ["snip", "params", "meco"], data=(X, X[:, :3]), loss=loss)
    assert scores["snip"].status == "failed" and says in scores["snip"].why
    assert scores["params"].ok


def test_refused() -> None:
    with pytest.raises(UserError, match=r"No loss is called 'msee'\. Did you mean 'mse'"):
        ez.score(regressor(), "snip", data=(X, X), loss="msee")
    with pytest.raises(UserError, match="a name or a function of outputs and targets, not int"):
        ez.score(regressor(), "snip", data=(X, X), loss=3)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="64 whole numbers, one for each input; for other targets name a loss"):
        ez.score(regressor(), "snip", data=(X, X[:, 0]))
    with pytest.raises(DataError, match="targets hold infinite"):
        ez.score(regressor(), "snip", data=(X, X[:, 0] / 0), loss="mse")
    with pytest.raises(UserError, match="needs ids"):
        ez.score(regressor(), "snip", data=X, loss="next token")
    with pytest.raises(UserError, match="--loss means nothing to it"):
        ez.search(method="nasi", loss="mse", budget=1)


def test_the_loss_is_part_of_the_batch() -> None:
    """So that a store keeps scores of two losses apart; the loss of class labels changes nothing."""
    batch = data.from_tensors(X, X[:, 0], targets=True)
    ids = {with_loss(batch, loss).id for loss in ("mse", "binary", F.mse_loss, F.l1_loss, None, "cross-entropy")}
    assert len(ids) == 5 and with_loss(batch, None) is batch


def test_search_and_rank() -> None:
    result = ez.search("mlp", "snip", budget=3, data=(X.view(64, 1, 5, 1), X[:, :2]), loss="mse")
    assert result.plan.output_shape == (2,) and result.best is not None
    alone = ez.score(result.module(), "snip", data=(X.view(64, 1, 5, 1), X[:, :2]), loss="mse")["snip"]
    assert result.best.score.value == pytest.approx(alone.value, rel=1e-5)
    ranking = ez.rank(
        {"a": regressor, "b": lambda: regressor(3)}, (X, X[:, 0]), proxy="snip", loss="mse", batch_size=32
    )
    assert ranking.best.name == "a" and "the output is [32, 3]" in ranking["b"].why


# ---- outputs and the command


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        (lambda x: {"logits": x, "hidden": x + 1}, True),
        (lambda x: {"out": x, "aux": x + 1}, True),
        (lambda x: {"prediction": x, "attentions": None}, True),
        (lambda x: {"inner": ({"prediction": x},)}, True),
        (lambda x: {"prediction": x, "states": (x,)}, False),
        (lambda x: [x], True),
        (lambda x: (x, x + 1), False),
        (lambda x: {"a": x, "b": x}, False),
    ],
)
def test_the_output_that_is_meant(returned: Callable[[Tensor], Any], found: bool) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = regressor(3)

        def forward(self, x: Tensor) -> Any:
            return returned(self.inner(x))

    score = ez.score(Net(), "snip", data=(X, torch.arange(64) % 3))["snip"]
    assert score.ok is found
    if found:
        assert score == ez.score(regressor(3), "snip", data=(X, torch.arange(64) % 3))["snip"]
    else:
        assert "say which of its parts" in score.why


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("net.py").write_text(
        "import torch\nfrom torch import nn\n\n"
        "def make():\n    x = torch.arange(24.0).view(8, 3)\n    return nn.Linear(3, 2), x, x[:, :2]\n\n"
        "def absolute(out, y):\n    return (out - y).abs().mean()\n"
    )
    for loss in ("mse", "net.py:absolute"):
        found = epochzero("score", "--module", "net.py:make", "--proxy", "snip", "--loss", loss, "--json").json
        assert found["scores"]["snip"]["status"] == "ok", json.dumps(found)
    assert "name a loss" in epochzero("score", "--module", "net.py:make", "--proxy", "snip").err
