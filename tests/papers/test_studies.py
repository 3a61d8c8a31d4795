"""`python -m epochzero_papers`: a command line for every study; those for GPU machines need torch and numpy alone."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from epochzero_papers import __main__ as studies
from epochzero_papers.__main__ import STUDIES, main, reader
from epochzero_papers.harness.options import device_option, option
from tests.fresh import Fresh

BARE = (
    "convergence", "known-cells", "nasi-record", "nesbs-attacks", "nesbs-chain", "recommender-sweep", "warm-up",
)  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """One option of each kind."""

    files: tuple[Path, ...] = option(positional=True)
    steps: int = option()
    kind: Literal["a", "b"] = option("a", "a or b")
    limit: float | None = option(None)
    often: tuple[str, ...] = option(())
    quick: bool = option(False)
    device: str = device_option()


def run(asked: Asked) -> str:
    """Returns its settings."""
    return str(asked)


@pytest.mark.parametrize("name", list(STUDIES))
def test_every_study_prints_its_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0
    assert f"python -m epochzero_papers {name}" in capsys.readouterr().out


def test_fields_are_options(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(studies, "STUDIES", {"made-up": "made_up:run"})
    monkeypatch.setattr(studies, "import_module", lambda name: sys.modules[__name__])
    main(
        [
            "made-up",
            "a.json",
            "b.json",
            "--steps",
            "3",
            "--limit",
            "0.5",
            "--often",
            "x",
            "--often",
            "y",
            "--quick",
            "--device",
            "cpu",
        ]
    )
    files = (Path("a.json"), Path("b.json"))
    assert capsys.readouterr().out.strip() == str(Asked(files, 3, "a", 0.5, ("x", "y"), True, "cpu"))
    main(["made-up", "a.json", "--steps", "3"])
    assert "limit=None, often=(), quick=False" in capsys.readouterr().out
    for wrong in ("made-up a.json", "made-up a.json --steps x", "made-up a.json --steps 3 --kind c", "other"):
        with pytest.raises(SystemExit) as stop:
            main(wrong.split())
        assert stop.value.code == 2


def test_without_a_study_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    shown = "".join(capsys.readouterr().out.split())
    assert all(name in shown for name in STUDIES)


def test_gpu_machines_need_torch_and_numpy_alone(fresh: Fresh) -> None:
    program = "import sys\nfrom epochzero_papers.__main__ import reader\nfor name in sys.argv[1:]:\n    reader(name)\n"
    done = fresh.bare(program, *BARE)
    assert done.code == 0, done.err
    assert reader("convergence")[1].parse_args(["--data", "a.npz", "--out", "b.json"]).epochs == 10
