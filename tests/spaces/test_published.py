"""Published models by name, with stand-ins for the packages that make them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import epochzero as ez
from epochzero.errors import UserError
from epochzero.registry import spaces
from epochzero.tables import AccuracyTable
from epochzero.testing import check_space
from tests.command import epochzero, refusal

WIDTHS = {"resnet18": 6, "resnet50": 9, "test_tiny": 2, "vit_tiny_patch16_224": 4}


def network(width: int, num_classes: int, channels: int) -> nn.Module:
    conv, norm = nn.Conv2d(channels, width, 3, 2, padding=1), nn.BatchNorm2d(width)
    return nn.Sequential(conv, norm, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, num_classes))


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A package timm of four models; returns what models are made with."""
    made: list[dict[str, Any]] = []

    def create_model(name: str, *, pretrained: bool, num_classes: int, **more: Any) -> nn.Module:
        made.append({"name": name, "pretrained": pretrained, **more})
        return network(WIDTHS[name.partition(".")[0]], num_classes, more.get("in_chans", 3))

    package: Any = ModuleType("timm")
    package.__version__ = "0.0"
    package.create_model, package.list_models = create_model, lambda: sorted(WIDTHS)
    package.is_model = WIDTHS.__contains__
    package.get_pretrained_cfg = lambda name: SimpleNamespace(fixed_input_size=name.startswith("vit"))
    monkeypatch.setitem(sys.modules, "timm", package)
    return made


@pytest.mark.usefixtures("timm")
def test_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but one promise: any word may be the name of a model, since a table of names is read without timm."""
    monkeypatch.setattr("epochzero.testing.spaces.check_refuses_nonsense", lambda space: None)
    check_space("published", samples=2, input_shape=(3, 8, 8))


def test_a_model_is_scored_by_its_name(timm: list[dict[str, Any]]) -> None:
    torch.manual_seed(0)
    data = torch.randn(8, 3, 16, 16)
    scores = ez.score("timm:resnet18", "params,naswot", data=data, y=torch.arange(8) % 5)
    assert scores["params"].value == 6 * 27 + 6 + 12 + 6 * 5 + 5
    assert scores["naswot"].ok
    assert scores == ez.score("timm:resnet18", "params,naswot", data=data, y=torch.arange(8) % 5)
    assert scores == ez.score("resnet18", "params,naswot", space="published", data=data, y=torch.arange(8) % 5)
    assert timm[-1] == {"name": "resnet18", "pretrained": False}
    ez.score("timm:vit_tiny_patch16_224", "params", data=torch.randn(2, 1, 32, 32))
    assert timm[-1] == {"name": "vit_tiny_patch16_224", "pretrained": False, "in_chans": 1, "img_size": (32, 32)}


@pytest.mark.usefixtures("timm")
def test_the_command_line_scores_a_name_as_a_module() -> None:
    ran = epochzero("score", "--module", "timm:resnet18", "--proxy", "params", "--batch-size", 2, "--json").json
    assert ran["arch"] == "timm:resnet18" and ran["scores"]["params"]["value"] == 6 * 27 + 6 + 12 + 6 * 1000 + 1000
    assert "3x224x224" in epochzero("score", "--module", "timm:resnet18", "--proxy", "params", "--batch-size", 2).out
    said = refusal("score", "--module", "timm:resnet19", "--proxy", "params")
    assert said == "timm 0.0 has no model 'resnet19'. Did you mean 'resnet18'?"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert "pip install timm." in refusal("score", "--module", "timm:resnet18", "--proxy", "params")
    with pytest.raises(UserError, match=r"Models of hf: need the package transformers.*pip install transformers"):
        ez.score("hf:microsoft/resnet-18", "params")


def test_a_hub_model_returns_its_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    class Classifier(nn.Module):
        def __init__(self, config: Any) -> None:
            super().__init__()
            self.net = network(3, config.num_labels, config.num_channels)

        def forward(self, pixel_values: Tensor) -> Any:
            return SimpleNamespace(logits=self.net(pixel_values), hidden_states=None)

    def configured(name: str, num_labels: int) -> Any:
        assert name == "microsoft/resnet-18"
        return SimpleNamespace(num_labels=num_labels, num_channels=3)

    package: Any = ModuleType("transformers")
    package.AutoConfig = SimpleNamespace(from_pretrained=configured)
    package.AutoModelForImageClassification = SimpleNamespace(from_config=Classifier)
    monkeypatch.setitem(sys.modules, "transformers", package)
    data = torch.randn(4, 3, 8, 8)
    assert ez.score("hf:microsoft/resnet-18", "naswot", data=data, y=torch.tensor([0, 1, 2, 0]))["naswot"].ok


@pytest.mark.parametrize("text", ["", "keras:resnet18", "timm:", "timm:a b", "hf:a/b/c", "../resnet18"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="names no published model"):
        spaces["published"].parse(text)


@pytest.mark.usefixtures("timm")
def test_a_table_of_names(tmp_path: Path) -> None:
    table = tmp_path / "models.csv"
    table.write_text("model,top1,tag\nresnet18,70.5,in1k\nresnet50,78.7,in1k\nvit_tiny_patch16_224,72.0,augreg\n")
    assert AccuracyTable.read(table).archs == ["resnet18", "resnet50", "vit_tiny_patch16_224"]
    common = ("--space", "published")
    small = ("--proxy", "params", "--input-shape", "3,8,8", "--batch-size", 4, "--json")
    result = epochzero("bench", "--table", table, "--target", "top1", *common, *small).json["results"][0]
    assert (result["n"], round(result["spearman"], 9)) == (3, 0.5)
    out = tmp_path / "models.ezb"
    assert epochzero("data", "import", table, *common, "--out", out, "--json").json["architectures"] == 3
    assert AccuracyTable.read(out).lookup("timm:resnet50", "top1") == 78.7
    found = epochzero("search", "--table", table, *common, *small, "--method", "random", "--budget", 4).json
    assert found["best"]["arch"] == "timm:resnet50" and found["known"]["top1"] == 78.7
