"""Old import paths, which keep working for one release with a DeprecationWarning that names the new one.

`import epochzero` puts `Moved` in front of Python's own finders. A module imported by its old name is the module of
the new name, not a copy of it, so that registries and classes stay one.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

NEW_NAMES = {
    "epochzero.analysis.convergence": "epochzero_papers.thesis.convergence",
    "epochzero.analysis.known_cells": "epochzero_papers.thesis.known_cells",
    "epochzero.analysis.layer_kernel": "epochzero.engine.layer_kernel",
    "epochzero.analysis.recorded": "epochzero_papers.thesis.recorded",
    "epochzero.analysis.theorems": "epochzero_papers.thesis.theorems",
    "epochzero.benchmarks": "epochzero.tables",
    "epochzero.benchmarks.nats": "epochzero.tables.formats.nats",
    "epochzero.benchmarks.nb101_records": "epochzero.tables.formats.nb101",
    "epochzero.benchmarks.nb201_pth": "epochzero.tables.formats.nb201",
    "epochzero.benchmarks.nb301": "epochzero.tables.formats.nb301",
    "epochzero.benchmarks.transnas_pth": "epochzero.tables.formats.transnas",
    "epochzero.cards": "epochzero.evaluate.cards",
    "epochzero.combine": "epochzero.objectives",
    "epochzero.data.ctr": "epochzero.recommend.data.ingest",
    "epochzero.experiments": "epochzero_papers",
    "epochzero.experiments.base": "epochzero_papers.harness.base",
    "epochzero.run": "epochzero.bare",
    "epochzero.run.bench": "epochzero.evaluate.bench",
    "epochzero.run.bench_figures": "epochzero.evaluate.figures",
    "epochzero.run.bench_sample": "epochzero.evaluate.sample",
    "epochzero.run.bench_scores": "epochzero.evaluate.scores",
    "epochzero.run.bundles": "epochzero.objectives.bundles",
    "epochzero.run.clock": "epochzero.study.clock",
    "epochzero.run.compile_ahead": "epochzero.executors.compile_ahead",
    "epochzero.run.executors": "epochzero.executors",
    "epochzero.run.front": "epochzero.study.front",
    "epochzero.run.front_plot": "epochzero.evaluate.front_plot",
    "epochzero.run.hunt": "epochzero.bare.search",
    "epochzero.run.inside": "epochzero.bare.search",
    "epochzero.run.latency": "epochzero.hardware.latency",
    "epochzero.run.meters": "epochzero.hardware.meters",
    "epochzero.run.outcome": "epochzero.study.result",
    "epochzero.run.plots": "epochzero.evaluate.plots",
    "epochzero.run.pool": "epochzero.study.pool",
    "epochzero.run.roofline": "epochzero.evaluate.speed.roofline",
    "epochzero.run.sources": "epochzero.study.sources",
    "epochzero.run.speed_report": "epochzero.evaluate.speed.report",
    "epochzero.run.task": "epochzero.study.task",
    "epochzero.run.timing": "epochzero.evaluate.speed.timing",
    "epochzero.searches": "epochzero.study.methods",
    "epochzero.train.image_folder": "epochzero.data.image_folder",
    "epochzero.train.population": "epochzero_papers.harness.population",
}
"""old name to new name; what lies below an old name is found below the new one"""
PAPERS = ("dextr", "nasi", "sigeo", "thesis")
"""`experiments.dextr_table1` is now `epochzero_papers.dextr.table1`"""
COMMANDS = {
    "epochzero.run.hunt": ["search"],
    "epochzero.run.inside": ["search", "--method", "nasi", "--data-seed", "0"],
    "epochzero.run.speed": ["speed"],
    "epochzero.run.sweep": ["sweep"],
}
"""old names for `python -m`, with the arguments of `python -m epochzero.bare`"""
PROGRAM = """
import sys
from epochzero.bare import command
from epochzero.bare.__main__ import main
sys.argv[0] = "epochzero.bare"
print("python -m {old} is now python -m epochzero.bare {new}: use that.", file=sys.stderr)
command(lambda: main({given} + sys.argv[1:]))
"""


def new_name(old: str) -> str | None:
    """Returns the present name of a module that moved, None for any other."""
    parts = old.split(".")
    if parts[:2] == ["epochzero", "experiments"] and len(parts) == 3:
        paper, _, rest = parts[2].partition("_")
        if rest and paper in PAPERS:
            return f"epochzero_papers.{paper}.{rest}"
    for end in range(len(parts), 1, -1):
        if (new := NEW_NAMES.get(".".join(parts[:end]))) is not None:
            return ".".join([new, *parts[end:]])
    return None


class Moved(Loader):
    """A finder and loader of modules by their old names."""

    @classmethod
    def find_spec(cls, name: str, *_: object) -> ModuleSpec | None:
        return ModuleSpec(name, cls(), is_package=name not in COMMANDS) if new_name(name) else None

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def get_code(self, name: str) -> CodeType:
        """Returns the program of `python -m` for an old name."""
        given = COMMANDS[name]
        return compile(PROGRAM.format(old=name, new=given[0], given=given), name, "exec")

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        new = str(new_name(old))
        try:
            moved = import_module(new)
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(_why_missing(old, new), name=old) from error
        warnings.warn(
            f"{old} is now {new}: import that; the old name goes with the next release.", DeprecationWarning, 2
        )
        sys.modules[old] = moved


def _why_missing(old: str, new: str) -> str:
    package = new.split(".", maxsplit=1)[0]
    try:
        import_module(package)
    except ModuleNotFoundError:
        return f"{old} is now {new}, which is not installed; it comes with epochzero-papers: pip install ./papers."
    return f"{old} was removed, and {new} does not exist: docs/design.md shows the present tree."


if Moved not in sys.meta_path:
    sys.meta_path.insert(0, Moved)
