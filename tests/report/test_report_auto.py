"""Reports of searches by `auto`: its column is computed again from the scores of its members."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import epochzero as ez
from epochzero.objectives.auto import NEWEST
from tests.report.stores import opened

NAME = f"auto:{NEWEST}"


def test_a_search_by_auto(tmp_path: Path) -> None:
    result = ez.search("nb201", "auto", budget=8, batch_size=4, store=tmp_path / "run.db")
    found = opened(tmp_path / "run.db")
    merits = [np.nan if merit is None else merit for merit in result.merits]
    assert found.columns[NAME] == pytest.approx(np.array(merits), nan_ok=True)
    assert found.head["by"] == NAME and found.head["archs"][found.head["best"][0]] == result.winner.text
    assert any(f"{NAME} ranks networks of nb201" in note and "Counting FLOPs" in note for note in found.head["notes"])


def test_a_front_with_auto(tmp_path: Path) -> None:
    result = ez.search("nb201", objectives="auto,-flops", budget=8, batch_size=4, store=tmp_path / "run.db")
    found = opened(tmp_path / "run.db")
    assert {found.head["archs"][i] for i in found.head["front"]} == {member.text for member in result.members}
    values = dict(zip(found.head["archs"], found.columns[NAME], strict=True))
    assert {member.text: member.values[0] for member in result.members} == {
        member.text: pytest.approx(values[member.text]) for member in result.members
    }
