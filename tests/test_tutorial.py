"""The tutorial, followed to the letter with a smaller search: each step prints what the page shows, but for numbers."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from tests.command import epochzero
from tests.test_guides import BLOCK, FILE

PAGE = Path(__file__).parents[1] / "docs" / "tutorial.md"
SMALLER = {"--budget 60": "--budget 8", "--epochs 6": "--epochs 2"}
DIFFERS = re.compile(r"[─╌]| (higher|lower)\b|Counting FLOPs|left 0:00|percentile among|batches of")
"""lines that depend on which network is found"""


def told(text: str) -> list[str]:
    """The lines that can be compared: without numbers, architectures and runs of spaces."""
    lines = (
        re.sub(r"\s+", " ", line).replace(" epoch ", " epochs ").strip()
        for line in text.splitlines()
        if not DIFFERS.search(line)
    )
    return [re.sub(r"-?\d[\d.,:e-]*( [kM]\b)?", "#", re.sub(r"\|\S+\|", "NETWORK", line)) for line in lines if line]


@pytest.mark.usefixtures("shallow_nb201", "onnx_rules")
def test_each_step_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    printed, compared = "", 0
    for language, code in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if named := FILE.match(code):
            Path(named[1]).write_text(code[named.end() :], encoding="utf-8")
        elif language == "sh":
            printed = run(code)
        elif language == "python":
            exec(compile(code, PAGE.name, "exec"), {"__name__": "__main__"})
            printed = capsys.readouterr().out
        elif printed:
            missing = set(told(code)) - {"..."} - set(told(printed))
            starts = {line for line in missing if line.endswith("...")}
            assert all(any(line.startswith(start[:-3].strip()) for line in told(printed)) for start in starts)
            assert missing == starts, f"{printed}\n\nlacks\n\n{missing - starts}"
            printed, compared = "", compared + 1
    assert compared == 5


def run(code: str) -> str:
    printed = ""
    for whole, small in SMALLER.items():
        code = code.replace(whole, small)
    for line in code.strip().splitlines():
        if line.startswith("python "):
            runpy.run_path(line.split()[1])
            continue
        ran = epochzero(*shlex.split(line)[1:])
        assert ran.code == 0, f"{line}\n{ran.err}"
        printed += ran.out + ran.err
    return printed
