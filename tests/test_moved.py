"""Old import paths give the modules of the new ones, and say so."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from importlib import import_module

import pytest

from epochzero.moved import NEW_NAMES, new_name
from tests.fresh import Fresh


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    for name in [name for name in sys.modules if name.startswith("epochzero.") and new_name(name)]:
        del sys.modules[name]


@pytest.mark.parametrize(
    "old",
    [*NEW_NAMES, "epochzero.searches.base", "epochzero.benchmarks.table", "epochzero.experiments.thesis_table5_1"],
)
def test_an_old_name_is_the_new_module(old: str) -> None:
    new = str(new_name(old))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert import_module(old) is import_module(new)
    said = caught[-1]  # those before it are of the packages that hold it
    assert said.category is DeprecationWarning and str(said.message).startswith(f"{old} is now {new}: import that")
    assert import_module(new).__name__ == new
    spec = import_module(new).__spec__
    assert spec is not None and spec.name == new


def test_names_of_old_packages_are_importable_from(fresh: Fresh) -> None:
    program = (
        "from epochzero.searches.base import Sampler\n"
        "from epochzero.study.methods import base\n"
        "from epochzero.run.executors import local\n"
        "assert Sampler is base.Sampler\n"
        "assert local.__name__ == 'epochzero.executors.local'\n"
    )
    done = fresh(program)
    assert done.code == 0, done.err


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_any_other_name_is_left_to_python() -> None:
    assert new_name("epochzero.spaces.nb201") is None
    with pytest.raises(ModuleNotFoundError, match="No module named"):
        import_module("epochzero.nothing")
    with pytest.raises(ModuleNotFoundError, match=r"epochzero\.searches\.nothing was removed"):
        import_module("epochzero.searches.nothing")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_papers_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "epochzero_papers", None)
    monkeypatch.setitem(sys.modules, "epochzero_papers.harness.base", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install \./papers"):
        import_module("epochzero.experiments.base")


def test_an_old_command_runs_and_names_the_new_one(fresh: Fresh) -> None:
    done = fresh("import runpy; runpy.run_module('epochzero.run.sweep', run_name='__main__')", "--help")
    assert done.code == 0 and "--proxies" in done.out
    assert done.err.strip().endswith("python -m epochzero.run.sweep is now python -m epochzero.bare sweep: use that.")
