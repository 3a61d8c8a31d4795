"""The runner of GPU tests: it knows them all, and only what passed counts as checked."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests import gpu_tests


def test_it_lists_every_test_the_longest_first() -> None:
    found = gpu_tests.names()
    files = [Path(f"{module.replace('.', '/')}.py") for module in gpu_tests.MODULES]
    root = Path(__file__).parent.parent
    written = re.findall(r"    def (test_\w+)", "".join((root / file).read_text(encoding="utf-8") for file in files))
    assert sorted(name.rpartition(".")[2] for name in found) == sorted(written)
    long = [name.rpartition(".")[2].startswith(gpu_tests.FIRST) for name in found]
    assert long == sorted(long, reverse=True) and sum(long) > 10


@pytest.mark.parametrize(
    ("code", "said", "result"),
    [(0, "OK", "passed"), (0, "OK (skipped=1)", "skipped"), (1, "FAILED (failures=1)", "FAILED")],
)
def test_what_is_skipped_has_not_passed(code: int, said: str, result: str) -> None:
    assert gpu_tests.outcome(code, said) == result


def test_what_is_not_done_in_time_is_not_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu_tests", "--seconds", "0", "--only", "side_stream"])
    assert gpu_tests.main() == 1
    said = capsys.readouterr().out
    assert said.count("NOT CHECKED (no time)") == 3 and said.endswith("0 of 3 tests passed in 0 s\n")
