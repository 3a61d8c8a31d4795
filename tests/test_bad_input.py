"""Modules and loaders that do not do: a sentence or a reason, never a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import epochzero as ez
from epochzero.errors import UserError
from epochzero.store import Store
from tests.command import CHEAP, epochzero
from tests.forgetting import plugins_forgotten

X, Y = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 4


def net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        return nn.Sequential(*layers, nn.Linear(16, 4))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (lambda: iter([(X, Y), (X[:2], Y[:2])]), "ended after 2 batches with 10 samples, fewer than one batch of 16"),
        (lambda: [(X / 0, Y)], "Batch 1 of the loader cannot be used"),
        (lambda: [(X, Y), (X[:, :, :4], Y)], "changes the form of its samples"),
        (lambda: iter([]), "yielded no batch"),
    ],
)
def test_a_loader_that_does_not_do_is_refused_in_a_sentence(given: Callable[[], Any], says: str) -> None:
    with pytest.raises(UserError, match=says) as refused:
        ez.score(net(), "snip", data=given(), batch_size=16)
    assert len(str(refused.value).splitlines()) == 1


def test_a_loader_of_one_batch_serves_what_reads_one() -> None:
    scores = ez.score(net(), ["snip", "zico"], data=[(X, Y)])
    assert scores["snip"].ok and "This batch has 1 part of 8 samples, and part 2 is needed" in scores["zico"].why


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_another_precision_run_in_single_precision(dtype: torch.dtype) -> None:
    same = net().to(dtype).float()
    expected = ez.score(same, ["snip", "naswot"], data=(X, Y))
    assert ez.score(same.to(dtype), ["snip", "naswot"], data=(X, Y)) == expected
    assert next(same.parameters()).dtype == dtype


def test_what_cannot_run_has_a_reason() -> None:
    class Elsewhere(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.shift = net(), torch.zeros(1, device="meta")  # not a buffer, so that nobody moves it

        def forward(self, x: Tensor) -> Tensor:
            shifted: Tensor = self.inner(x) + self.shift
            return shifted

    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net().half()

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.inner(x.half())
            return logits

    for module in (Elsewhere(), Halves()):
        scores = ez.score(module, ["snip", "params"], data=(X, Y))
        assert scores["params"].ok and "the module's forward raised RuntimeError" in scores["snip"].why
    with pytest.raises(UserError, match="is on the device meta, without values"):
        ez.score(net().to("meta"), "snip", data=(X, Y))
    ranking = ez.rank(
        {"meta": net().to("meta"), "lazy": nn.LazyLinear(3), "good": net()}, (X, Y), proxy="snip", seeds=2
    )
    assert [row.name for row in ranking.scored] == ["good"]
    assert "device meta" in ranking["meta"].why and "has no shape yet" in ranking["lazy"].why


# ---- the command


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "mine"
    made.mkdir()
    (made / "neighbour_of_mine.py").write_text("from torch import nn\n\n\ndef head():\n    return nn.Linear(48, 10)\n")
    (made / "nets.py").write_text(
        "from torch import nn\nfrom neighbour_of_mine import head\n\n\n"
        "def good():\n    return nn.Sequential(nn.Flatten(), head())\n\n\ndef bad():\n    return head()\n\n\n"
        "def fitted(num_classes, input_shape):\n    return nn.Sequential(nn.Flatten(), nn.Linear(48, num_classes))\n"
    )
    (made / "plugin.py").write_text(
        "import epochzero as ez\nfrom epochzero.registry import spaces\nfrom torch import nn\n"
        "from neighbour_of_mine import head\n\n\n"
        "def build(bias):\n    return nn.Sequential(nn.Flatten(), head())\n\n\n"
        "spaces.register('neighbourly', ez.choices(build, bias=[0, 1]))\n"
    )
    monkeypatch.setattr("sys.path", [*sys.path])
    return made


COMMON = ("--proxy", "snip", "--input-shape", "3,4,4", "--batch-size", "4")


def test_modules_may_import_their_neighbours_and_be_several(folder: Path) -> None:
    good, bad = (f"{folder}/nets.py:{name}" for name in ("good", "bad"))
    found = epochzero("score", "--module", good, "--module", bad, *COMMON, "--json").json["networks"]
    assert [one["arch"] for one in found] == [good, bad]
    assert [one["scores"]["snip"]["status"] for one in found] == ["ok", "failed"]
    shown = epochzero("score", "--module", good, "--module", bad, *COMMON)
    assert shown.code == 0 and good in shown.out and bad in shown.out


def test_a_factory_may_take_the_classes_of_the_data(folder: Path) -> None:
    common = (*COMMON, "--classes", "7", "--proxy", "params", "--json")
    found = epochzero("score", "--module", f"{folder}/nets.py:fitted", *common).json
    assert found["scores"]["params"]["value"] == 49 * 7


def test_runs_that_ended_are_finished(folder: Path) -> None:
    asked = ["search", "--space", "mlp", "--proxy", "params", "--budget", 2, "--batch-size", 2, "--max-latency-ms", 500]
    asked += ["--winner-scores", "all"]
    assert epochzero(*asked, "--store", folder / "r.db").code == 0
    with Store.open(folder / "r.db") as store:
        states = {run.kind: run.state for run in store.runs()}
    assert states == dict.fromkeys(("search", "winner", "latency"), "finished")


def test_no_score_ends_with_1(folder: Path) -> None:
    ran = epochzero("score", "--module", f"{folder}/nets.py:bad", *COMMON)
    assert ran.code == 1 and "failed" in ran.out
    degenerate = epochzero(
        "score", "--arch", CHEAP.replace("skip_connect", "none"), "--proxy", "snip", "--batch-size", 2
    )
    assert degenerate.code == 0 and "degenerate" in degenerate.out


def test_plug_ins_may_import_their_neighbours(folder: Path) -> None:
    with plugins_forgotten():
        asked = ("--plugin", f"{folder}/plugin.py", "--space", "neighbourly", "--arch", "bias=1", *COMMON, "--json")
        assert epochzero("score", *asked).json["scores"]["snip"]["status"] == "ok"
