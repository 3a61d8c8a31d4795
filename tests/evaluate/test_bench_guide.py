"""The guide on trusting a score, run as it is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_guides import commands_of, files_of, here

GUIDE = "trusting-a-score.md"


def test_every_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in files_of(GUIDE).items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    first, second = (here(command) for command in commands_of(GUIDE))
    assert re.search(r"params +12 +\.\d+ \[", first) and "over 3 repeats" in first
    names = {path.name for path in (tmp_path / "results").iterdir()}
    assert {"results.json", "results.csv", "scores.csv", "ranking.md", "ranking.png", "ranking.svg"} <= names
    assert "twelve-cifar10_test-l2_norm.png" in names
    assert "difference from params" in second and "spearman|params" in second and "regret@10" in second
    assert "scores are shared between isomorphic networks" in second
