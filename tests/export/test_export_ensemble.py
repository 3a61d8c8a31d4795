"""An ensemble as a product: code that needs torch alone, ONNX that agrees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from epochzero.ensemble.model import Ensemble, Pixels
from epochzero.registry import spaces
from epochzero.types import Origin
from tests.command import CHEAP, epochzero, refusal
from tests.export.test_export import ALONE, run_alone

SHAPE = (3, 8, 8)
pytestmark = pytest.mark.usefixtures("shallow_nb201", "onnx_rules")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, shallow_nb201: None) -> Path:
    """Two architectures, so that blocks of one name differ."""
    space = spaces["nb201"]
    archs = [space.parse(text) for text in (CHEAP, CHEAP.replace("none~1|+", "nor_conv_1x1~1|+"))]
    modules = [space.plan(arch, 4, SHAPE).module(Origin(seed=i)) for i, arch in enumerate(archs)]
    ensemble = Ensemble(space, archs, modules, Pixels((0.5,) * 3, (0.25,) * 3, 255.0), {"method": "random"})
    folder = tmp_path_factory.mktemp("ensemble")
    ensemble.save(folder)
    return folder


def test_one_file_of_code_runs_with_torch_alone(saved: Path, tmp_path: Path) -> None:
    report = epochzero("export", "--weights", saved, "--out", tmp_path, "--json").json
    assert report["errors"]["model.py"] < 1e-5 and report["errors"]["model.onnx"] < 1e-4
    assert sorted(Path(file).name for file in report["files"]) == [
        "MODEL_CARD.md",
        "model.onnx",
        "model.py",
        "model.safetensors",
    ]
    (found,) = json.loads(run_alone(ALONE, json.dumps([(str(tmp_path / "model.py"), SHAPE)])))
    x = torch.sin(torch.arange(2 * 192)).reshape(2, *SHAPE)
    expected = Ensemble.load(saved)(x).detach()
    torch.testing.assert_close(torch.tensor(found), expected, atol=1e-5, rtol=1e-5)
    card = (tmp_path / "MODEL_CARD.md").read_text()
    assert "2 networks of nb201" in card and "divided by 255" in card and "| chosen by | random |" in card
    assert "was not trained by EpochZero" in card and "| multiply-accumulates | " in card


def test_an_ensemble_says_what_it_is(saved: Path, tmp_path: Path) -> None:
    says = refusal("export", "--weights", saved, "--out", tmp_path, "--classes", 9)
    assert "determines this: leave --classes out" in says
