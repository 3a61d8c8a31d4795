"""Who may import whom: the order of the layers is the order of the design."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import epochzero
from tests.fresh import Fresh

ROOT = Path(epochzero.__file__).parent
LAYERS = [
    {"types", "errors", "registry", "quantities", "files", "progress", "moved"},
    {"plan"},
    {"data"},
    {"spaces"},
    {"engine"},
    {"proxies"},
    {"objectives"},
    {"store"},
    {"tables"},
    {"stats"},
    {"supernet"},
    {"executors", "study", "hardware", "evaluate", "run", "bare"},
    {"train"},
    {"ensemble"},
    {"export"},
    {"analysis"},
    {"recommend"},
    {"report"},
    {"next_steps", "api"},
    {"testing"},
    {"cli"},
    {"__main__"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
FILES = sorted(ROOT.rglob("*.py"))


def imported(file: Path) -> set[str]:
    """The layers that a file imports, also inside functions; not what is only for the type checker."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        modules = []
        if isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module]
            if node.module == "epochzero":
                modules = [f"epochzero.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        found |= {m.split(".")[1] for m in modules if m.startswith("epochzero.")}
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_imports_point_up(file: Path) -> None:
    layer = file.relative_to(ROOT).parts[0].removesuffix(".py")
    if layer == "__init__":
        return
    assert layer in RANK, f"{layer} has no place in the order of layers"
    for other in imported(file) - {"__version__"}:
        assert RANK[other] <= RANK[layer], f"{file.name} of {layer} imports {other}, which lies above it"


@pytest.mark.parametrize("package", ["study.methods", "stats", "store", "tables", "types", "registry"])
def test_loads_without_torch(package: str) -> None:
    program = (
        f"import importlib, pkgutil, sys, epochzero.{package} as package\n"
        "for found in pkgutil.iter_modules(getattr(package, '__path__', [])):\n"
        f"    importlib.import_module('epochzero.{package}.' + found.name)\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_engine_needs_torch_and_numpy_alone(fresh: Fresh) -> None:
    """On a bare machine plan, engine, spaces, proxies, data and store run without what the rest needs."""
    program = (
        "import epochzero as ez, epochzero.store\n"
        "assert ez.score('|none~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|', 'dextr', space='nb201')\n"
        "assert ez.search(budget=2).best\n"
    )
    done = fresh.bare(program)
    assert done.code == 0, done.err


def test_what_is_slow_to_load_is_loaded_where_it_is_used_alone(fresh: Fresh) -> None:
    program = (
        "import sys, epochzero.cli, epochzero.executors.ray, epochzero.stats\n"
        "from epochzero.cli.loading import loaded\n"
        "loaded()\n"
        "sys.exit(', '.join({'ray', 'scipy', 'matplotlib', 'polars', 'pyarrow', 'torch._dynamo'} & {*sys.modules}))\n"
    )
    assert fresh(program).err == "\n"


def test_no_file_is_a_drawer() -> None:
    """Nothing is called utils, and no file holds more than one thing."""
    for file in FILES:
        assert "util" not in file.name
        assert len(file.read_text(encoding="utf-8").splitlines()) <= 400, f"{file.name} is longer than 400 lines"
