"""Executors: the same store, history and winner whoever scores; nothing is lost with a worker; clear mistakes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import epochzero as ez
from epochzero import data
from epochzero.cli.plugin import load_plugins
from epochzero.engine import Proxy, parse, precision
from epochzero.errors import MachineError, UserError
from epochzero.executors import worker
from epochzero.executors.base import LARGEST, chunks
from epochzero.executors.local import Local
from epochzero.executors.processes import Processes
from epochzero.executors.ray import Ray
from epochzero.executors.worker import Failure, Recipe, Share, answer
from epochzero.registry import spaces
from epochzero.spaces.mlp import MLP
from epochzero.store import Store
from epochzero.study.result import Result
from epochzero.study.task import Task
from epochzero.types import Score
from tests.command import epochzero, process, refusal
from tests.forgetting import plugins_forgotten
from tests.study.test_resume import content

PLUGIN = Path(__file__).with_name("executor_plugin.py")
FOLDER = "EPOCHZERO_TEST_FOLDER"
SLOW = pytest.mark.skipif("EPOCHZERO_SLOW" not in os.environ, reason="takes ten seconds: set EPOCHZERO_SLOW=1")
IMAGES = data.pink((3, 8, 8), size=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the plug-in reads what to do and notes what it did: known to workers from their start."""
    made = tmp_path_factory.mktemp("executors")
    with pytest.MonkeyPatch.context() as patch, plugins_forgotten():
        patch.setenv(FOLDER, str(made))
        load_plugins([str(PLUGIN)])
        yield made


@pytest.fixture(scope="module")
def processes(folder: Path) -> Iterator[Processes]:
    with Processes(2, prepare=partial(load_plugins, [str(PLUGIN)])) as executor:
        yield executor


@pytest.fixture(scope="module")
def one(folder: Path) -> Iterator[Processes]:
    """A single worker, where each that dies costs the start of but one more."""
    with Processes(1, prepare=partial(load_plugins, [str(PLUGIN)])) as executor:
        yield executor


@pytest.fixture(autouse=True)
def clean(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def search(store: Path, executor: Any, proxy: str = "l2_norm", budget: int = 30, **given: Any) -> Result:
    options = {"batch": 6, "population": 10, "tournament": 3}
    given.setdefault("data", IMAGES)
    return ez.search(proxy=proxy, budget=budget, store=store, executor=executor, seed=3, options=options, **given)


@pytest.mark.parametrize("proxy", ["l2_norm", "rank(naswot,grad_norm)"])
def test_a_search_is_the_same_whoever_scores(tmp_path: Path, processes: Processes, proxy: str) -> None:
    calm = search(tmp_path / "local.db", Local(1), proxy, 18)
    spread = search(tmp_path / "processes.db", processes, proxy, 18)
    assert spread.best == calm.best and spread.run == calm.run
    assert content(tmp_path / "processes.db") == content(tmp_path / "local.db")
    with Store.open(tmp_path / "processes.db") as store:
        (run,) = store.runs()
    settings: Any = run.manifest["settings"]
    assert settings["executor"] == {"name": "processes", "workers": 2, "threads": 1}


def test_a_search_begun_by_one_executor_is_ended_by_another(tmp_path: Path, processes: Processes) -> None:
    calm = search(tmp_path / "calm.db", Local(1))

    def stop(outcome: Result) -> None:
        if outcome.evaluated >= 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(tmp_path / "run.db", processes, progress=stop)
    assert search(tmp_path / "run.db", Local(1)).best == calm.best
    assert content(tmp_path / "run.db") == content(tmp_path / "calm.db")


def test_given_tensors_and_labels_reach_the_workers(tmp_path: Path, processes: Processes) -> None:
    x = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    given = {"data": (x, torch.arange(8)), "batch_size": 4}
    calm = search(tmp_path / "local.db", Local(1), "grad_norm", 12, **given)
    assert search(tmp_path / "processes.db", processes, "grad_norm", 12, **given).best == calm.best
    assert content(tmp_path / "processes.db") == content(tmp_path / "local.db")


def test_a_bench_is_the_same_on_the_command_line(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    archs = list(spaces["nb201"])[:: 15625 // 12][:12]
    rows = [f'"{spaces["nb201"].text(arch)}",{rng.uniform(80, 95):.2f}' for arch in archs]
    (tmp_path / "table.csv").write_text("\n".join(["arch_str,accuracy", *rows]))
    few: tuple[object, ...] = (
        "bench",
        "--table",
        tmp_path / "table.csv",
        "--target",
        "accuracy",
        "--proxy",
        "l2_norm,naswot",
    )
    few = (*few, "--input-shape", "3,8,8", "--batch-size", "2", "--json", "--threads", "1")
    calm = epochzero(*few, "--store", tmp_path / "local.db").json
    spread = epochzero(*few, "--store", tmp_path / "processes.db", "--executor", "processes", "--workers", "2").json
    assert calm["results"][0]["n"] == 12 and spread["results"] == calm["results"]
    assert content(tmp_path / "processes.db") == content(tmp_path / "local.db")


# Workers that die


def test_a_killed_worker_loses_nothing(tmp_path: Path, folder: Path, processes: Processes) -> None:
    calm = search(tmp_path / "local.db", Local(1), "mortal")
    (folder / "deaths").write_text("1\n2\n")
    killed = search(tmp_path / "killed.db", processes, "mortal")
    assert len((folder / "died").read_text().splitlines()) > 2, "nobody died"
    assert killed.best == calm.best
    assert content(tmp_path / "killed.db") == content(tmp_path / "local.db")


def test_a_worker_that_dies_between_two_batches_is_replaced(one: Processes, tmp_path: Path) -> None:
    search(tmp_path / "before.db", one, budget=6)
    (worker,) = one._all
    worker._process.kill()
    worker._process.wait()
    assert search(tmp_path / "after.db", one, budget=6).evaluated == 6


def test_a_chunk_that_kills_every_worker_is_given_up(
    tmp_path: Path, folder: Path, one: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("epochzero.executors.processes.TRIES", 2)
    (folder / "deaths").write_text("again\n" * 1000)
    with pytest.raises(MachineError, match=r"^2 workers died one after the other on .*\(ended by SIGKILL\).* is safe"):
        search(tmp_path / "run.db", one, "mortal")
    (folder / "deaths").unlink()
    calm = search(tmp_path / "calm.db", Local(1), "mortal")
    assert search(tmp_path / "run.db", one, "mortal").best == calm.best
    assert content(tmp_path / "run.db") == content(tmp_path / "calm.db")


def alive(workers: set[str]) -> set[str]:
    """Those of the processes that run: neither gone nor waiting to be buried."""
    stats = {pid: Path(f"/proc/{pid}/stat") for pid in workers}
    states = {pid: stat.read_text().rpartition(")")[2].split()[0] for pid, stat in stats.items() if stat.exists()}
    return {pid for pid, state in states.items() if state != "Z"}


def until(what: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 120
    while not what():
        assert time.monotonic() < give_up, "this took too long"
        time.sleep(0.02)


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=SLOW)])
def test_no_worker_outlives_the_search(tmp_path: Path, folder: Path, how: signal.Signals) -> None:
    begun = folder / "begun"
    (folder / "pace").write_text("0.2")
    arguments = ["search", "--proxy", "slow", "--budget", "1000", "--plugin", str(PLUGIN), "--store", "run.db"]
    arguments += ["--executor", "processes", "--workers", "2", "--winner-scores", "none", "--json"]
    command = subprocess.Popen(
        process(*arguments), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until(lambda: begun.exists() and len(begun.read_text().splitlines()) > 20)
    workers = set(begun.read_text().split())
    assert len(workers) == 2 and alive(workers)
    command.send_signal(how)
    out, err = command.communicate(timeout=120)
    assert "Traceback" not in err, err
    assert (how == signal.SIGINT) == ('"stopped": "it was interrupted"' in out), (
        "what was found so far, and else nothing"
    )
    if how == signal.SIGINT:
        assert command.returncode == 130 and "the same command resumes" in err
        assert not alive(workers)
    until(lambda: not alive(workers))
    with Store.open(tmp_path / "run.db") as store:
        stored = len(list(store.all_scores()))
    assert 0 < stored < 100 and stored % 8 == 0, "whole batches are stored"


# Plug-ins


def test_workers_load_plugins_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A space of modules, in a file that is named relative to the folder of the command."""
    (tmp_path / "lines.py").write_text(
        "from torch import nn\n"
        "from epochzero.registry import spaces\n"
        "from epochzero.spaces.mlp import MLP\n"
        "class Lines:\n"
        "    name = 'lines'\n"
        "    def __init__(self):\n"
        "        for method in ('parse', 'text', 'sample', 'mutate', 'neighbours', 'smallest'):\n"
        "            setattr(self, method, getattr(MLP(), method))\n"
        "    def build(self, arch):\n"
        "        return nn.Sequential(nn.Flatten(), nn.Linear(3072, arch), nn.ReLU(), nn.Linear(arch, 10))\n"
        "spaces.register('lines', Lines())\n"
    )
    few: tuple[object, ...] = (
        "search",
        "--space",
        "lines",
        "--proxy",
        "snip",
        "--budget",
        6,
        "--batch-size",
        2,
        "--json",
    )
    few = (*few, "--plugin", "lines.py", "--plugin", PLUGIN, "--threads", 1, "--winner-scores", "none")
    monkeypatch.chdir(tmp_path)
    with plugins_forgotten():
        calm = epochzero(*few).json
        assert epochzero(*few, "--executor", "processes", "--workers", 1).json["best"] == calm["best"]


# Shares of workers on a GPU


def test_workers_score_in_single_precision(one: Processes) -> None:
    """Though torch lets cuDNN round to TF32."""
    cells = [spaces["nb201"].smallest()]
    ((scores, _),) = one.score(Task(spaces["nb201"], [parse("precision")], IMAGES), cells)
    assert scores["precision"] == Score(0.0)


def test_workers_may_round_as_this_process_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision._State, "tf32", True)
    recipe = Recipe.of(Task(spaces["nb201"], [parse("precision")], IMAGES), 1, None)
    precision.allow_tf32(False)
    task = recipe.task()
    ((scores, _),) = task.score([spaces["nb201"].smallest()])
    assert scores["precision"] == Score(3.0)


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int | None]]:
    """As if there were one; how much of its memory is taken, of which."""
    taken: list[tuple[float, int | None]] = []
    monkeypatch.setattr("epochzero.engine.device.usable", lambda _: None)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda *given: taken.append(given))
    return taken


@pytest.mark.parametrize(("device", "index"), [("cuda", None), ("cuda:1", 1)])
def test_processes_share_a_gpu(device: str, index: int | None, on_gpu: list[tuple[float, int | None]]) -> None:
    with Processes(4) as crew:
        recipe = crew.recipe(Task(spaces["nb201"], [parse("params")], IMAGES, device=device))
        recipe.task()
        assert on_gpu == [(0.95 / 4, index)]
        assert recipe.share.folder is not None and Path(recipe.share.folder).is_dir()
        again = crew.recipe(Task(spaces["nb201"], [parse("flops")], IMAGES, device=device))
        assert again.share == recipe.share
    assert not Path(recipe.share.folder).exists()


def test_workers_of_ray_take_the_memory_of_their_part(on_gpu: list[tuple[float, int | None]]) -> None:
    task = Task(spaces["nb201"], [parse("params")], IMAGES, device="cuda")
    for gpus in (0.25, 1.0):
        Ray(gpus=gpus).recipe(task).task()
    assert on_gpu == [(0.95 * 0.25, None)]


def test_on_a_cpu_there_is_nothing_to_share(on_gpu: list[tuple[float, int | None]]) -> None:
    recipe = Processes(4).recipe(Task(spaces["nb201"], [parse("params")], IMAGES))
    recipe.task()
    assert not on_gpu and recipe.share.folder is None


def test_workers_compile_together_before_they_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_gpu: list[tuple[float, int | None]]
) -> None:
    compiled: list[Path] = []
    monkeypatch.setattr(worker, "compile_share", lambda task, folder: compiled.append(folder))
    task = Task(spaces["nb201"], [parse("params")], IMAGES, device="cpu")
    recipe = Recipe.of(task, 1, None, Share(0.5, str(tmp_path)))
    texts = [spaces["nb201"].text(spaces["nb201"].smallest())] * 2
    for _ in range(2):
        assert len(answer(("compiling", str(tmp_path)), lambda: recipe, texts)) == 2  # type: ignore[arg-type]
    assert compiled == [tmp_path] and len(on_gpu) == 1


# Mistakes


def test_what_workers_cannot_know_is_refused_here(processes: Processes) -> None:
    class Mine(MLP):
        name = "mine"

    with pytest.raises(UserError, match="The space 'mine' is not registered under that name, so that workers"):
        processes.score(Task(Mine(), [parse("params")], IMAGES), [1])
    other = Proxy("params", lambda trace: 1.0, parse("params").needs_of, True, {})
    with pytest.raises(UserError, match="The proxy 'params' is not registered under that name"):
        processes.score(Task(spaces["nb201"], [other], IMAGES), [spaces["nb201"].smallest()])


def test_a_bug_in_a_worker_is_a_sentence(tmp_path: Path, folder: Path, processes: Processes) -> None:
    (folder / "bug").touch()
    with pytest.raises(MachineError, match=r"^A worker failed on '\|.*\|': KeyError: 'a bug'$") as raised:
        search(tmp_path / "run.db", processes, "buggy")
    assert 'executor_plugin.py", line' in str(raised.value.__cause__)
    assert search(tmp_path / "run.db", processes, budget=6).evaluated == 6, "the workers go on"


def test_a_worker_that_cannot_be_prepared_says_why(
    tmp_path: Path, one: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that no other test asks it for, so that there is something to prepare."""
    monkeypatch.setattr(one, "prepare", partial(load_plugins, [str(tmp_path / "gone.py")]))
    with pytest.raises(UserError, match="no file"):
        search(tmp_path / "run.db", one, "params", budget=1)


def test_the_errors_of_a_chunk_keep_their_kind() -> None:
    def fails(error: Exception) -> Callable[[], Recipe]:
        def recipe() -> Recipe:
            raise error

        return recipe

    for error, kind in ((UserError("Do that."), UserError), (MachineError("Disk full."), MachineError)):
        found = answer(("new",), fails(error), ["a"])
        assert isinstance(found, Failure)
        assert type(found.error()) is kind and str(found.error()) == str(error)
    found = answer(("new",), fails(torch.OutOfMemoryError("CUDA out of memory.")), ["a", "b"])
    assert isinstance(found, Failure) and not found.mendable
    assert found.sentence.startswith("A worker has not enough memory for one of 2 networks from 'a' on")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--executor", "proceses"], "No executor is called 'proceses'. Did you mean 'processes'?"),
        (
            ["--executor", "local", "--workers", "2"],
            "The executor 'local' takes no workers: use it with the executor auto or ",
        ),
        (
            ["--executor", "processes", "--workers", "0"],
            "The number of workers is 0; it has to be at least 1, and at most 4,096.",
        ),
        (["--executor", "processes", "--address", "a:1"], "The executor 'processes' takes no address"),
        (["--executor", "processes", "--gpus", "1"], "The executor 'processes' takes no gpus"),
        (["--executor", "ray", "--gpus", "0"], "A worker cannot have 0.0 GPUs"),
        (["--threads", "0"], "The number of threads is 0"),
        (["--executor", "processes", "--device", "cuda:99"], "The device 'cuda:99' cannot be used here"),
    ],
)
def test_refusals(given: list[str], says: str) -> None:
    assert says in refusal("search", "--budget", "1", *given)


def test_an_open_executor_has_its_settings_already() -> None:
    with pytest.raises(UserError, match="open already has its workers"):
        ez.search(executor=Local(), workers=2)


# Parts


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_chunks_hold_everything_in_order(workers: int, device: str) -> None:
    for count in (0, 1, 2, 8, 33, 1000):
        cut = chunks(range(count), workers, device, 2)
        assert [item for chunk in cut for item in chunk] == list(range(count))
        step = 1 if device == "cpu" else LARGEST
        assert all(1 <= len(chunk) <= LARGEST for chunk in cut)
        assert all(len(chunk) % step == 0 for chunk in cut[:-1]), "chunks on a GPU are cut by workers"
        assert len(cut) >= min(workers, -(-count // step)), "a worker goes without"


def test_local_gives_torch_its_threads_back(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    seen: list[int] = []
    search(tmp_path / "run.db", Local(before + 1), budget=6, progress=lambda _: seen.append(torch.get_num_threads()))
    assert set(seen) == {before} and torch.get_num_threads() == before
    assert Local(5).about() == {"name": "local", "workers": 1, "threads": 5}
