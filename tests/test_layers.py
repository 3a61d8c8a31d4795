"""Who may import whom: the order of the layers is the order of the design."""

from __future__ import annotations

import ast
import subprocess
import sys
from inspect import isfunction, signature
from pathlib import Path

import pytest

import epochzero as ez
from epochzero import recommend
from tests.fresh import Fresh

ROOT = Path(ez.__file__).parent
LAYERS = [
    {
        "types",
        "errors",
        "strict",
        "unpickling",
        "registry",
        "quantities",
        "files",
        "progress",
        "moved",
        "user_code",
        "frames",
        "pictures",
        "callbacks",
    },
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
    {"executors.base", "executors.local"},
    {"study.methods", "study.clock", "study.sources", "study.task"},
    {"executors"},
    {"hardware"},
    {"study"},
    {"evaluate"},
    {"train"},
    {"ensemble"},
    {"export"},
    {"analysis"},
    {"recommend"},
    {"report"},
    {"next_steps", "api"},
    {"testing"},
    {"bare"},
    {"cli"},
    {"__main__"},
]
"""packages and modules, the lowest first; a module of a package may have a place of its own"""
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
FILES = sorted(ROOT.rglob("*.py"))


def place(module: str) -> str:
    """The entry of `LAYERS` for a module, `study.task` or else `study`."""
    parts = module.split(".")[1:]
    return ".".join(parts[:2]) if ".".join(parts[:2]) in RANK else parts[0]


def imported(file: Path) -> set[str]:
    """The modules that a file imports, also inside functions; not what is only for the type checker."""
    modules: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        if isinstance(node, ast.ImportFrom) and node.module in PACKAGES:
            modules.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
        elif isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(file.read_text(encoding="utf-8")))
    return {module for module in modules if module.startswith("epochzero.")}


PACKAGES = {"epochzero", "epochzero.study", "epochzero.executors"}
"""packages whose own modules are imported from them"""


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_imports_point_up(file: Path) -> None:
    name = ".".join(("epochzero", *file.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    if name == "epochzero":
        return
    layer = place(name)
    assert layer in RANK, f"{layer} has no place in the order of layers"
    for other in imported(file) - {"epochzero.__version__"}:
        assert RANK[place(other)] <= RANK[layer], f"{name} imports {other}, which is in a higher layer"


@pytest.mark.parametrize(
    "package", ["study", "study.methods", "objectives", "stats", "store", "tables", "types", "registry"]
)
def test_loads_without_torch(package: str) -> None:
    program = (
        f"import importlib, pkgutil, sys, epochzero.{package} as package\n"
        "for module in pkgutil.iter_modules(getattr(package, '__path__', [])):\n"
        f"    importlib.import_module('epochzero.{package}.' + module.name)\n"
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


def test_the_design_names_every_package_and_module_at_the_top() -> None:
    design = (ROOT.parents[1] / "docs" / "design.md").read_text(encoding="utf-8")
    tree = set(design.split("## The tree")[1].split("\n## ")[0].split())
    modules = {path.name for path in ROOT.glob("*.py") if not path.name.startswith("__")}
    assert {*modules, *(f"{path.parent.name}/" for path in ROOT.glob("*/__init__.py"))} <= tree


def test_no_file_is_a_drawer() -> None:
    """Nothing is called utils, and no file holds more than one thing."""
    for file in FILES:
        assert "util" not in file.name
        assert len(file.read_text(encoding="utf-8").splitlines()) <= 400, f"{file.name} is longer than 400 lines"


MOST_PARAMETERS = 12
PUBLIC = {"epochzero.api": ez.__all__, "epochzero.recommend.pipeline": recommend.__all__}
"""where public calls are, and their names"""


def _parameters(file: Path) -> dict[str, int]:
    """The number of parameters of every function in a file, but of Triton kernels and public calls."""
    name = ".".join(("epochzero", *file.relative_to(ROOT).with_suffix("").parts))
    counts = {}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            called = getattr(node, "name", "lambda")
            marks = [ast.unparse(mark) for mark in getattr(node, "decorator_list", ())]
            if not any("triton.jit" in mark for mark in marks) and called not in PUBLIC.get(name, ()):
                given = node.args
                counts[f"{name}.{called}"] = len([*given.posonlyargs, *given.args, *given.kwonlyargs])
    return counts


def test_no_function_has_more_than_twelve_parameters_but_public_calls_and_triton_kernels() -> None:
    many = {name: n for file in FILES for name, n in _parameters(file).items() if n > MOST_PARAMETERS}
    assert not many
    assert max(_parameters(ROOT / "study" / "loop.py").values()) > 8  # it does count


def test_public_calls_with_many_parameters_are_four() -> None:
    """A parameter of a public call is an option of users; more of such calls want a reason."""
    calls: set[object] = {ez.score, ez.search, ez.rank, recommend.search}
    every = [getattr(ez, name) for name in ez.__all__] + [getattr(recommend, name) for name in recommend.__all__]
    many = {call for call in every if isfunction(call) and len(signature(call).parameters) > MOST_PARAMETERS}
    assert many == calls
