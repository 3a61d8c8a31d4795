"""Every search, killed twice and resumed, ends as if undisturbed; so it does elsewhere and with other workers."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from epochzero.executors.processes import Processes
from epochzero.registry import searches
from epochzero.store import Store
from epochzero.supernet import methods as inside
from tests.fresh import Fresh
from tests.study.methods.undisturbed import BUDGET, LIVES, OPTIONS, STEPS, search, shallow
from tests.study.test_resume import content

BUILT_IN = [*(name for name in searches if searches.origins[name].startswith("epochzero.")), *inside]
LIBRARIES = {"hnas": "bayes_opt", "tpe": "optuna"}
HERE = [name for name in BUILT_IN if find_spec(LIBRARIES.get(name, "torch"))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, fresh: Fresh) -> Path:
    """The files of `tests.study.methods.undisturbed`."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert fresh.module("tests.study.methods.undisturbed", folder, *HERE) == (0, "", "")
    return folder


@pytest.fixture(scope="module")
def processes(shallow_nb201: None) -> Iterator[Processes]:
    with Processes(2, prepare=shallow) as executor:
        yield executor


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def all_of(path: Path) -> tuple[Any, ...]:
    """A store's content, and the states of searches inside one network."""
    with Store.open(path) as store:
        return (*content(path), [run.saved() for run in store.runs()])


def test_options_are_those_of_searches() -> None:
    assert set(OPTIONS) <= set(BUILT_IN)


@pytest.mark.parametrize("method", BUILT_IN)
def test_killed_and_resumed_it_ends_as_if_undisturbed(folder: Path, method: str) -> None:
    if method not in HERE:
        pytest.skip(f"{method} needs {LIBRARIES[method]}")
    calm, resumed = all_of(folder / f"{method}.calm.db"), all_of(folder / f"{method}.db")
    assert resumed == calm
    with Store.open(folder / f"{method}.db") as store:
        runs = store.runs()
    assert all(run.state == "finished" for run in runs if run.kind != "pool")
    assert sum(len(run.resumed) for run in runs) >= len(LIVES)


@pytest.mark.parametrize("method", BUILT_IN)
def test_the_same_in_another_process_and_with_other_workers(
    folder: Path, method: str, processes: Processes, tmp_path: Path, one_thread: None
) -> None:
    if method not in HERE:
        pytest.skip(f"{method} needs {LIBRARIES[method]}")
    search(method, tmp_path / "here.db", None if method in inside else processes)
    here, there = all_of(tmp_path / "here.db"), all_of(folder / f"{method}.calm.db")
    assert here == there
    ((_, state, result, _),) = [run for run in here[1].values() if run[2] is not None]
    assert state == "finished" and result["best"]
    assert result.get("steps") == STEPS if method in inside else 12 <= result["evaluated"] <= BUDGET
