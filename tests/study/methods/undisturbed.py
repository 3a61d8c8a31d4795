"""Every search on its own, killed twice: `python -m tests.study.methods.undisturbed FOLDER METHOD...` leaves
stores there.

A process of its own, so that it can fork. Each killed search ends itself without a word, at a network in the middle of
a batch or after a step, and the last one finds what the others left.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from epochzero import api, data
from epochzero.executors import Executor
from epochzero.executors.local import Local
from epochzero.spaces import nb201
from epochzero.store import JSON, Run
from epochzero.study import inside as supernets
from epochzero.study.task import Task
from epochzero.supernet import methods as inside
from epochzero.types import Score

BUDGET = 24
STEPS = 6
LIVES = (8,)
"""networks that a search scores before it is killed; a step inside one network counts as three"""
IMAGES = data.pink((3, 8, 8), size=4, parts=2)
OPTIONS: dict[str, dict[str, Any]] = {
    "evolution": {"population": 8, "tournament": 3, "batch": 5},
    "evolution_az": {"population": 8, "batch": 5},
    "evolution_nasrec": {"population": 8, "generations": 4, "tournament": 3, "children": 5},
    "evolution_zen": {"population": 6, "batch": 5},
    "guided": {"networks": 30, "proxies": "params,naswot,l2_norm"},
    "hnas": {"metric": "snip", "networks": 12, "probes": 9},
    "local_search": {"batch": 5},
    "pareto": {"population": 8, "batch": 5},
    "random": {"batch": 5},
    "reinforce": {"batch": 5},
    "robot": {"networks": 30, "proxies": "params,naswot,l2_norm"},
    "te_nas": {"networks": 5, "batch": 5},
    "top_k": {"proxy": "snip", "networks": 20, "batch": 5},
    "tpe": {"startup": 5, "batch": 5},
    "nasi": {"nu": "adaptive", "channels": 2, "cells": 1},
    "zero_cost_pt": {"channels": 2, "cells": 1},
}
BY = {"evolution_az": {"proxy": "rank(l2_norm,params)"}, "pareto": {"objectives": "l2_norm,-params"}}


def shallow() -> None:
    """One cell in each stage of a network: here, and in every process that has a say in the scores."""
    nb201.CELLS = 1


def search(method: str, store: Path, executor: Executor | None = None) -> None:
    """A small search of nb201; executors score for all but those inside one network."""
    given: dict[str, Any] = {"proxy": "l2_norm"} | BY.get(method, {})
    options = OPTIONS.get(method, {})
    budget = STEPS if method in inside else BUDGET
    api.search(
        method=method,
        budget=budget,
        data=IMAGES,
        seed=1,
        store=store,
        options=options,
        executor=executor or Local(1),
        **given,
    )


def killed(method: str, store: Path, life: int) -> None:
    """A search that dies once it has scored `life` networks, or taken a third of as many steps."""
    left = life

    def one_more(cost: int = 1) -> None:
        nonlocal left
        left -= cost
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    score, save = Task.score, Run.save

    def counted(self: Task, archs: Sequence[Any]) -> list[tuple[dict[str, Score], float]]:
        found = []
        for arch in archs:
            found += score(self, [arch])
            one_more()
        return found

    def saved(self: Run, state: Mapping[str, JSON]) -> None:
        save(self, state)
        one_more(3)

    Task.score, Run.save = counted, saved  # type: ignore[method-assign]
    search(method, store)


def in_a_child(work: Callable[[], None]) -> int:
    """Run it in a fork; the signal that ended it, or 0."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("a search failed")
    return os.WTERMSIG(status)


def main(folder: Path, methods: Sequence[str]) -> None:
    torch.set_num_threads(1)
    shallow()
    supernets.EVERY = 0.0
    for method in methods:
        resumed = folder / f"{method}.db"
        search(method, folder / f"{method}.calm.db")  # here, so that the forks find everything loaded
        for life in LIVES:
            assert in_a_child(partial(killed, method, resumed, life)) == signal.SIGKILL
        assert in_a_child(partial(search, method, resumed)) == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
