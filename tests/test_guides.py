"""The guides' code, run as it is written: each block that names a file becomes that file, each `sh` block is run."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from tests.command import epochzero
from tests.forgetting import plugins_forgotten
from tests.fresh import Fresh

GUIDES = Path(__file__).parents[1] / "docs" / "guides"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# file: ([\w.]+)(, continued)?\n")


def files_of(guide: str) -> dict[str, str]:
    """The files that a guide shows, by name; what continues one is put below it."""
    files: dict[str, str] = {}
    for language, code in BLOCK.findall((GUIDES / guide).read_text(encoding="utf-8")):
        if language != "sh":
            named = FILE.match(code)
            assert named is not None, f"a block of {guide} names no file: {code[:60]!r}"
            name, continued = named.groups()
            assert (name in files) == bool(continued), f"{name} is begun twice in {guide}, or not at all"
            files[name] = files.get(name, "") + ("\n\n" if continued else "") + code[named.end() :]
    return files


def commands_of(guide: str) -> list[str]:
    blocks = BLOCK.findall((GUIDES / guide).read_text(encoding="utf-8"))
    return [line for language, code in blocks if language == "sh" for line in code.strip().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside the package with the files of the guide."""
    made = tmp_path_factory.mktemp("guide")
    for name, content in files_of("your-own-space.md").items():
        (made / name).write_text(content, encoding="utf-8")
    return made


def here(command: str) -> str:
    """The same for a line that starts with `epochzero`, without the price of a new process."""
    ran = epochzero(*shlex.split(command)[1:])
    assert ran.code == 0, f"{command}\n{ran.err}"
    return ran.out


def test_every_command_runs(folder: Path, monkeypatch: pytest.MonkeyPatch, fresh: Fresh) -> None:
    monkeypatch.chdir(folder)
    *few, checks, listing, scoring, planned, built = commands_of("your-own-space.md")
    module = checks.removeprefix("python -m ").split()
    assert checks != " ".join(module) and "2 passed" in fresh.module(*module).out
    with plugins_forgotten():
        assert [here(line).partition("=")[0] for line in few] == ["width", "width"]
        listed, scored, by_plan, by_module = map(here, (listing, scoring, planned, built))
    assert "wavy_towers" in listed and "Towers: three" in listed
    assert "params  1,982 " in scored and "failed" not in scored
    assert re.match(r"\d+-\d+-\d+\n", by_plan) and re.match(r"\d+-\d+-\d+\n", by_module)
    assert "Wave()" in by_module
    assert {file.name for file in (folder / "plan").iterdir()} == {"cell.svg", "network.svg", "model.py", "winner.json"}
    assert {file.name for file in (folder / "module").iterdir()} == {"layers.txt", "winner.json"}
    assert json.loads((folder / "plan" / "winner.json").read_text())["best"]["params"] <= 3_000
    assert 0 < json.loads((folder / "module" / "winner.json").read_text())["best"]["flops"] <= 700_000


def test_python_runs_the_script(folder: Path, fresh: Fresh) -> None:
    done = fresh((folder / "search_towers.py").read_text(encoding="utf-8"), folder=folder)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert len(lines) == 2
    assert all(re.fullmatch(r"\d+-\d+-\d+ \d+", line) for line in lines)


def test_a_space_in_few_lines(folder: Path, fresh: Fresh) -> None:
    done = fresh((folder / "few_lines.py").read_text(encoding="utf-8"), folder=folder)
    assert done.code == 0, done.err
    count, winner = done.out.splitlines()
    assert count == "10" and winner.startswith("width=")


def test_the_entry_point_registers(folder: Path, tmp_path: Path, fresh: Fresh) -> None:
    """As an installed package has it: metadata beside the module, and no --plugin."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = tmp_path / "towers-0.1.dist-info"
    metadata.mkdir()
    about = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (metadata / "METADATA").write_text(about)
    groups = [
        f"[{group}]\n" + "\n".join(f"{name} = {module}" for name, module in points.items())
        for group, points in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(groups))
    program = f"import sys; sys.path[:0] = {[str(tmp_path), str(folder)]}; from epochzero.cli import main; main()"
    listed = fresh(program, "list", "spaces", "--json")
    networks = {row["name"]: row["networks"] for row in json.loads(listed.out)["spaces"]}
    assert networks["towers"] == networks["wavy_towers"] == "27"
