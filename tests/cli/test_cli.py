"""The command line: what it prints where, the files that it leaves, and the fields of its JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import epochzero as ez
from epochzero import data
from epochzero.cli import app
from epochzero.cli.loading import ABOUT, loaded
from epochzero.evaluate.cards import card
from epochzero.evaluate.evidence import tables
from epochzero.objectives.auto import NEWEST
from epochzero.registry import proxies, searches, spaces
from epochzero.stats.text import short
from epochzero.supernet import methods
from tests.command import CHEAP, CUT, epochzero, process

FEW = ["--batch-size", "2"]
SPACE = spaces["nb201"]


# list


@pytest.mark.parametrize("kind", ["proxies", "spaces", "searches"])
def test_list(kind: str) -> None:
    known = {"proxies": proxies, "spaces": spaces, "searches": [*searches, *methods]}[kind]
    ran = epochzero("list", kind)
    assert (ran.code, ran.err) == (0, "")
    assert [line.split()[0] for line in ran.out.splitlines() if line[:1].strip()] == ["name", *known]
    rows = epochzero("list", kind, "--json").json[kind]
    assert [row["name"] for row in rows] == list(known)
    assert all(row["about"] and row["origin"] for row in rows)


def test_a_narrow_terminal_cuts_no_word_of_the_proxies() -> None:
    listed = epochzero("list", "proxies").out
    assert "…" not in listed and all(card(one).summary.rstrip(".").split()[-1] in listed for one in proxies.values())


def test_the_list_says_what_a_proxy_is_what_it_costs_and_how_good_it_is() -> None:
    wide = {row["name"]: row for row in epochzero("list", "proxies", "--json").json["proxies"]}
    known = [table.known["snip"].spearman for table in tables() if "snip" in table.known]
    assert wide["snip"]["spearman"] == short(sum(known) / len(known), 2) and wide["snip"]["tables"] == len(known)
    assert (wide["snip"]["passes"], wide["ntk_cond"]["passes"], wide["params"]["passes"]) == ("1+1", "1+B", "0+0")
    ours = [table.known[f"auto:{NEWEST}"].spearman for table in tables()]
    told = f"auto:{NEWEST}, the score where none is named, has {short(sum(ours) / len(ours), 2)} on {len(ours)}"
    assert told in " ".join(epochzero("list", "proxies").out.split())


def test_list_says_what_matters() -> None:
    listed = {row["name"]: row for row in epochzero("list", "proxies", "--json").json["proxies"]}
    assert listed["plain"]["better"] == "lower"
    assert listed["snip"]["better"] == "higher"
    assert listed["zico"]["labels"] == "needed"
    assert listed["naswot"]["labels"] == ""
    assert "batches=2" in listed["zico"]["settings"]
    options = {row["name"]: row["options"] for row in epochzero("list", "searches", "--json").json["searches"]}
    assert "population=50, tournament=10" in options["evolution"] and "metric=trace" in options["hnas"]
    sizes = {row["name"]: row["networks"] for row in epochzero("list", "spaces", "--json").json["spaces"]}
    assert sizes["nb201"] == "15,625"


# score


def test_score_json_has_the_fields_of_the_design() -> None:
    found = epochzero(
        "score", "--space", "nb201", "--arch", CUT, "--proxy", "synflow,plain,params", *FEW, "--json"
    ).json
    assert found["arch"] == CUT
    assert list(found["scores"]) == ["synflow", "plain", "params"]
    for score in found["scores"].values():
        assert set(score) == {"value", "status", "why", "higher_is_better"}
    assert found["scores"]["params"] == {"value": 73_306, "status": "ok", "why": "", "higher_is_better": True}
    assert found["scores"]["synflow"]["value"] is None
    assert found["scores"]["synflow"]["status"] == "degenerate"
    assert "no signal flows" in found["scores"]["synflow"]["why"]
    assert found["scores"]["plain"]["higher_is_better"] is False
    assert (found["params"], found["flops"]) == (73_306, 7_783_040)


def test_score_is_what_the_library_says() -> None:
    asked = ["naswot", "zico(batches=3)", "fmi"]
    ran = epochzero(
        "score", "--arch", f" {CHEAP}\n", "--proxy", ",".join(asked), "--batch-size", 4, "--seed", 3, "--json"
    )
    here = ez.score(CHEAP, asked, space="nb201", data=data.pink(size=4, seed=3), seed=3)
    assert {name: score["value"] for name, score in ran.json["scores"].items()} == pytest.approx(
        {name: score.value for name, score in here.items()}, rel=1e-6
    )
    assert ran.json["arch"] == CHEAP
    assert ran.json["seed"] == 3


def test_score_in_words() -> None:
    ran = epochzero("score", "--arch", CUT, "--proxy", "synflow,plain,params", *FEW)
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == CUT
    assert "params  73,306 (0.07 M)" in lines
    assert "flops   7,783,040 (7.78 M)" in lines
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.startswith(("synflow", "plain ", "params "))}
    assert rows["synflow"][:2] == ["degenerate", "higher"]
    assert rows["plain"][1] == "lower"
    assert "no signal flows" in ran.out


def test_score_on_a_file_of_samples(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "some [bold].npz", x=rng.integers(0, 255, (9, 8, 8, 3), np.uint8), y=np.arange(9) % 3)
    arguments = ["score", "--arch", CHEAP, "--proxy", "snip", "--data", tmp_path / "some [bold].npz", "--batch-size", 4]
    ran = epochzero(*arguments)
    assert "training samples of some [bold].npz" in ran.out, "square brackets are no markup"
    found = epochzero(*arguments, "--json").json
    assert found["params"] == 73_306 - 65 * 7, "three classes, as the labels say"
    assert found["scores"]["snip"]["status"] == "ok"


MODULES = """
from __future__ import annotations
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    width: int = 6


class Tuple(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, Config().width, 3)
        self.head = nn.Linear(6, 10)

    def logits(self, x):
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))

    def forward(self, x):
        return x.mean(), self.logits(x)


class Dict(Tuple):
    def forward(self, x):
        return {"logits": self.logits(x), "features": x}


class Bare(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.v = nn.Parameter(torch.ones(6, 3, 3, 3)), nn.Parameter(torch.ones(10, 6))

    def forward(self, x):
        return F.linear(F.relu(F.conv2d(x, self.w)).mean((2, 3)), self.v)


def plain():
    return nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 10))


made = plain()
"""


@pytest.mark.parametrize(
    ("name", "output"),
    [("plain", None), ("made", None), ("Bare", None), ("Tuple", "1"), ("Tuple", "-1"), ("Dict", "logits")],
)
def test_score_of_a_module(tmp_path: Path, name: str, output: str | None) -> None:
    (tmp_path / "nets.py").write_text(MODULES)
    picked = [] if output is None else ["--output", output]
    arguments = [
        "--module",
        f"{tmp_path / 'nets.py'}:{name}",
        "--input-shape",
        "3,12,10",
        "--proxy",
        "params,flops,snip",
    ]
    found = epochzero("score", *arguments, *picked, *FEW, "--json").json
    assert found["arch"] == f"{tmp_path / 'nets.py'}:{name}"
    bias = 0 if name == "Bare" else 16
    assert found["scores"]["params"]["value"] == 6 * 27 + 60 + bias
    assert found["scores"]["flops"]["value"] == 6 * 27 * 10 * 8 + 60
    assert found["scores"]["snip"]["status"] == "ok"
    assert "3x12x10" in found["batch"]


# Help


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("list", ["--json"]),
        ("score", ["--space", "--arch", "--module", "--output", "--proxy", "--data", "--input-shape", "--init"]),
        ("search", ["--proxy", "--method", "--budget", "--max-params", "--max-flops", "--option", "--store", "--out"]),
        ("bench", ["--table", "--target", "--proxy", "--sample", "--unscored", "--store", "--json"]),
        ("store", ["--to", "--json"]),
    ],
)
def test_help_teaches(command: str, options: list[str]) -> None:
    for flag in ("--help", "-h"):
        result = CliRunner().invoke(app, [command, flag])
        assert result.exit_code == 0
        assert f"epochzero {command} " in result.output.replace(f"Usage: epochzero {command} ", ""), "an example"
        assert all(option in result.output for option in options)
        assert not any(odd in result.output for odd in ("<bool>", "list[", "range", "<=", str(2**62)[:9]))


def test_help_of_the_whole_and_version() -> None:
    helped = CliRunner().invoke(app, ["--help"])
    assert all(command in helped.output for command in ("list", "score", "search", "bench", "store"))
    ran = epochzero("--version")
    assert (ran.code, ran.out, ran.err) == (0, f"epochzero {ez.__version__}\n", "")


def test_each_is_known_by_the_first_line_of_its_help() -> None:
    helps = {name: str(command.help).split("\n\n")[0] for name, command in loaded().commands.items()}
    assert {name: " ".join(line.split()) for name, line in helps.items()} == ABOUT


# A process of its own


def test_help_needs_no_torch() -> None:
    program = (
        "import sys; from epochzero.cli import app; app(['-h'], standalone_mode=False); print('torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "bench-speed" in ran.stdout and ran.stdout.endswith("False\n")


def test_nothing_but_json_on_standard_output_of_a_real_process() -> None:
    program = process("score", "--arch", CHEAP, "--proxy", "dextr,curvature", *FEW, "--json")
    ran = subprocess.run(program, capture_output=True, text=True, check=True)
    assert set(json.loads(ran.stdout)["scores"]) == {"dextr", "curvature"}
    assert ran.stdout.count("\n") == 1
    assert ran.stderr == ""
