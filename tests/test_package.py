"""The package: wheel and source distribution have their files and facts, and run where nothing else is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
BUILD = """
from setuptools import build_meta
build_meta.build_sdist("dist")
build_meta.build_wheel("dist")
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, built; without git, so that the version is the fallback."""
    folder = tmp_path_factory.mktemp("package")
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    subprocess.run([sys.executable, "-c", BUILD], cwd=folder, check=True, capture_output=True)
    return folder


def test_the_wheel_has_every_file(built: Path) -> None:
    (wheel,) = (built / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as held:
        names = {name for name in held.namelist() if ".dist-info/" not in name}
        (facts,) = (held.read(name).decode() for name in held.namelist() if name.endswith(".dist-info/METADATA"))
    source = built / "src"
    assert names == {str(file.relative_to(source)) for file in (source / "epochzero").rglob("*") if file.is_file()}
    assert "Rank neural networks in seconds" in facts and "Requires-Dist: torch" in facts
    assert f"\nVersion: {version()}.dev0\n" in facts and "Classifier: Operating System :: MacOS" in facts


def test_the_source_distribution_makes_the_same_wheel(built: Path) -> None:
    (source,) = (built / "dist").glob("*.tar.gz")
    with tarfile.open(source) as held:
        names = {name.partition("/")[2] for name in held.getnames()}
        held.extractall(built / "unpacked", filter="data")
    assert {"pyproject.toml", "README.md", "LICENSE", "PKG-INFO"} <= names
    assert not [name for name in names if name.startswith(("docs", "tests", "papers", "benchmarks"))]
    (unpacked,) = (built / "unpacked").iterdir()
    subprocess.run([sys.executable, "-c", BUILD], cwd=unpacked, check=True, capture_output=True)
    first, second = (next((folder / "dist").glob("*.whl")) for folder in (built, unpacked))
    with zipfile.ZipFile(first) as one, zipfile.ZipFile(second) as other:
        assert {name: one.getinfo(name).CRC for name in one.namelist() if not name.endswith("RECORD")} == {
            name: other.getinfo(name).CRC for name in other.namelist() if not name.endswith("RECORD")
        }


def test_readme_s_commands_run_where_nothing_else_is_installed(built: Path, tmp_path: Path) -> None:
    """The wheel in an environment of its own, beside the packages that it requires, and none of the extras."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    (wheel,) = (built / "dist").glob("*.whl")
    install = ("install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", str(wheel))
    subprocess.run([sys.executable, "-m", "pip", "--python", python, *install], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    required = runtime_requirements()
    assert {"torch", "numpy", "scipy", "typer", "rich"} <= required and not {"matplotlib", "onnx", "pyarrow"} & required
    for name in required:
        for top in tops(name):
            if not (packages / top.name).exists():
                (packages / top.name).symlink_to(top)
    (tmp_path / "nets.py").write_text(NETS, encoding="utf-8")
    for command, shows in (
        ("rank nets.py:small nets.py:large --seeds 2 --batch-size 8 --input-shape 3,8,8", "nets.py:large"),
        (
            "search --space nb201 --max-params 1M --budget 2 --batch-size 2 --proxy naswot --store run.db --out winner",
            "params",
        ),
        ("report run.db --out report.html", "report.html"),
    ):
        words = [str(environment / "bin" / "epochzero"), *command.split()]
        outside = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        ran = subprocess.run(words, cwd=tmp_path, env=outside, capture_output=True, text=True, check=False)
        assert ran.returncode == 0 and shows in ran.stdout + ran.stderr, ran.stderr
    assert (tmp_path / "winner" / "cell.svg").exists() and (tmp_path / "report.html").exists()


NETS = """
from torch import nn

def net(width):
    features = nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU()
    return nn.Sequential(*features, nn.Flatten(), nn.Linear(36 * width, 10))

def small():
    return net(4)

def large():
    return net(8)
"""


def runtime_requirements() -> set[str]:
    """The packages that the wheel requires, and those that they require, as installed here."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted, found = [*project["dependencies"]], set()
    while wanted:
        requirement = wanted.pop()
        name = re.match(r"[\w.-]+", requirement)
        if name is None or "extra ==" in requirement or name[0] in found:
            continue
        try:
            needs = distribution(name[0]).requires
        except PackageNotFoundError:  # for another system
            continue
        found.add(name[0])
        wanted += needs or []
    return found


def tops(name: str) -> set[Path]:
    """The files and folders of a package in site-packages."""
    here = distribution(name)
    root = Path(str(here.locate_file("")))
    parts = {file.parts[0] for file in here.files or () if file.parts[0] not in ("..", "__pycache__")}
    return {root / part for part in parts}


def test_the_citation_has_the_version() -> None:
    assert f"\nversion: {version()}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {version()}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def version() -> str:
    """The release that is being made: sources without git have its version with .dev0."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    fallback: str = settings["tool"]["setuptools_scm"]["fallback_version"]
    return fallback.removesuffix(".dev0")
