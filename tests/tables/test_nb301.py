from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from epochzero.errors import DataError, UserError
from epochzero.registry import spaces
from epochzero.tables.formats.nb301 import NB301
from tests.command import epochzero, refusal


class Ensemble:
    """A surrogate whose prediction is 80 and one for each convolution of the normal cell."""

    def predict(self, config: Any, representation: str, with_noise: bool) -> float:
        assert (representation, with_noise) == ("genotype", False)
        assert len(config.normal) == len(config.reduce) == 8
        return 80.0 + sum("conv" in op for op, _ in config.normal)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = ModuleType("nasbench301")
    package.load_ensemble = lambda path: Ensemble()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nasbench301", package)
    (tmp_path / "xgb_v1.0" / "0").mkdir(parents=True)
    (tmp_path / "xgb_v1.0" / "0" / "surrogate_model.model").write_bytes(b"")
    return tmp_path / "xgb_v1.0"


def test_predictions_by_query(folder: Path) -> None:
    benchmark = NB301.load(folder, spaces["darts"], trusted=True)
    convolutions = sum("conv" in op for op, _ in spaces["darts"].parse("DARTS_V2").normal)
    assert benchmark.accuracy("DARTS_V2", split="val") == 80 + convolutions
    assert benchmark.accuracy("DARTS_V2", "cifar10", "val", 100) == 80 + convolutions
    assert benchmark.cost("DARTS_V2") == {}
    for asked in ({"split": "test"}, {"dataset": "cifar100"}, {"epochs": 200}, {"seed": 1}):
        with pytest.raises(DataError, match="predicts only the mean accuracy on val of cifar10 after 100 epochs"):
            benchmark.accuracy("DARTS_V2", **asked)


def test_a_table_of_random_networks(folder: Path, tmp_path: Path) -> None:
    asked = ("data", "import", folder, "--space", "darts", "--out", tmp_path / "a.ezb", "--sample", 5, "--trust")
    first, again = (epochzero(*asked, "--json").json for _ in range(2))
    assert first == again
    assert first["architectures"] == 5
    assert first["notes"] == ["These are predictions of a surrogate for 5 random networks (seed 0)."]
    assert epochzero(*asked, "--seed", 1, "--json").json["sha256"] != first["sha256"]


def test_what_a_surrogate_needs(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("data", "import", folder, "--space", "darts", "--out", tmp_path / "a.ezb")
    assert "is a surrogate and has no rows. Give --sample" in refusal(*asked)
    assert "can run any code. If you trust them, give --trust" in refusal(*asked, "--sample", 5)
    monkeypatch.setitem(sys.modules, "nasbench301", None)
    assert "needs its own package: pip install nasbench301" in refusal(*asked, "--sample", 5, "--trust")
    with pytest.raises(UserError, match="trust"):
        NB301.load(folder, spaces["darts"])
    assert not (tmp_path / "a.ezb").exists()
