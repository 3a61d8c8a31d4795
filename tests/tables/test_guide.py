"""The guide on benchmark tables, run as it is written."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from epochzero.registry import spaces
from tests.test_guides import GUIDES, commands_of, files_of, here

GUIDE = "benchmark-tables.md"


def test_every_command_and_the_script_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content in files_of(GUIDE).items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    imported, shown, benched = (here(command) for command in commands_of(GUIDE))
    assert "4 architectures of nb201 from mine.csv + phone.csv" in imported
    assert "2 of 4 architectures are not in phone.csv." in imported
    assert re.search(r"cifar10_test +93\.66", shown) and re.search(r"pixel3_latency +not known", shown)
    assert re.search(r"params +4 +1\.000", benched), benched
    runpy.run_path("ask.py")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "88.2167 71.71"
    assert lines[1].startswith("{'params': 129310.0") and "'latency': 2.35423" in lines[1]
    assert lines[2] == "False True"


def test_every_space_that_is_named_is_there() -> None:
    text = (GUIDES / GUIDE).read_text(encoding="utf-8")
    rows = [line.split("|")[3] for line in text.splitlines() if line.startswith("| N") or line.startswith("| T")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert len(rows) == 6 and named == {"nb101", "nb201", "nats_sss", "transnas_micro", "transnas_macro", "darts"}
    assert named <= set(spaces)
