"""Strict runs: the same bits whatever the threads, the process, the neighbours and the executor."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import nn

import epochzero as ez
from epochzero import data
from epochzero.errors import UserError
from epochzero.executors.local import Local
from epochzero.executors.processes import Processes
from epochzero.executors.worker import Recipe
from epochzero.registry import spaces
from epochzero.store import Store
from epochzero.strict import batch_name, is_strict, set_strict, strictly
from epochzero.study.task import Task
from tests.command import epochzero, refusal
from tests.fresh import Fresh

SPACES = ("nb201", "autoformer_tiny")
SHAPES = {"nb201": (3, 16, 16), "autoformer_tiny": (3, 32, 32)}
FEW = {"sigeo": "sigeo(batches=2)", "swap": "swap(repeats=1,samples=4)", "swap_reg": "swap_reg(repeats=1,samples=4)"}
PROXIES = [FEW.get(name, name) for name in ez.list_proxies()]


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    set_strict(False)


def digits(space: str, strict: bool = True) -> dict[str, list[str]]:
    """Status and bits of every proxy, of the smaller of three networks."""
    of = spaces[space]
    rng = Random(0)
    small = min((of.sample(rng) for _ in range(3)), key=lambda arch: of.plan(arch, 10, SHAPES[space]).flops)
    scores = ez.score(small, PROXIES, space=space, data=data.pink(SHAPES[space], size=4, parts=2), strict=strict)
    return {name: [score.status, float(score.value).hex()] for name, score in scores.items()}


@pytest.mark.parametrize("space", SPACES)
def test_every_proxy_has_the_same_bits(space: str, fresh: Fresh, tmp_path: Path) -> None:
    here = digits(space)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        torch.rand(3)  # the global generator means nothing
        assert digits(space) == here
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    loose = digits(space, strict=False)
    assert [one for one, _ in here.values()] == [one for one, _ in loose.values()], "strict runs lose scores"
    for name, (_, value) in here.items():
        close = pytest.approx(float.fromhex(loose[name][1]), rel=0.02, abs=1e-6, nan_ok=True)
        assert float.fromhex(value) == close, name
    out = tmp_path / "there.json"
    assert fresh.module("tests.engine.test_strict", space, out)[0] == 0
    assert json.loads(out.read_text()) == here


def test_torch_is_as_it_was_afterwards() -> None:
    seen: list[tuple[bool, int]] = []

    class Looking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(12, 3)

        def forward(self, x: torch.Tensor) -> Any:
            seen.append((torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()))
            return self.head(x.flatten(1))

    module, x = Looking(), torch.ones(4, 3, 2, 2)
    torch.set_num_threads(2)
    try:
        ez.score(module, "l2_norm,grad_norm", data=x, strict=True)
        assert seen and set(seen) == {(True, 1)}
        assert (torch.are_deterministic_algorithms_enabled(), torch.get_num_threads(), is_strict()) == (False, 2, False)
        with pytest.raises(UserError), strictly():
            ez.score(module, "l2_norm", data=x, threads=2)
        assert not is_strict()
        seen.clear()
        ez.rank([module, Looking()], data=x, y=torch.tensor([0, 1, 2, 0]), proxy="grad_norm", seeds=1, strict=True)
        assert seen and {one for one in seen if one[0]} == {(True, 1)}
    finally:
        torch.set_num_threads(1)


def test_a_strict_search_is_the_same_whoever_scores_and_reads_no_other_scores(tmp_path: Path) -> None:
    given: dict[str, Any] = {"data": data.pink((3, 8, 8), size=2), "proxy": "naswot", "budget": 12, "method": "random"}
    plain = ez.search(store=tmp_path / "run.db", executor=Local(1), **given)
    with Processes(2) as executor:
        first = ez.search(store=tmp_path / "run.db", executor=executor, strict=True, **given)
        again = ez.search(store=tmp_path / "other.db", executor=Local(), strict=True, **given)
        loose = ez.search(store=tmp_path / "third.db", executor=executor, **given)
    assert first.recalled == 0 and first.run != plain.run == loose.run
    assert first.merits == again.merits
    with Store.open(tmp_path / "run.db") as store:
        batches = {row.batch for row in store.all_scores()}
    assert len(batches) == 2 and {batch.removesuffix("-strict") for batch in batches} == {min(batches)}


def test_workers_are_strict_for_strict_tasks_alone() -> None:
    task = Task(spaces["nb201"], [], data.pink((3, 8, 8), size=2))
    with strictly():
        assert Recipe.of(task, 1, None).strict and task.setting.batch == batch_name(task.batch.id)
    assert not Recipe.of(task, 1, None).strict and task.setting.batch == task.batch.id


def test_more_threads_are_refused() -> None:
    says = "A strict run has one thread for each network, not 2: leave out --threads or --strict."
    for options in (["--strict", "--threads", 2], ["--threads", 2, "--strict"]):
        assert refusal("search", "--budget", 1, *options) == says


SCORING = ("score", "search", "rank", "bench", "leaderboard", "recommend search", "analyze stability", "analyze kernel")


def test_every_scoring_command_can_be_strict() -> None:
    for name in SCORING:
        assert "--strict" in epochzero(*name.split(), "--help").out, name


if __name__ == "__main__":
    torch.set_num_threads(2)
    Path(sys.argv[2]).write_text(json.dumps(digits(sys.argv[1])))
