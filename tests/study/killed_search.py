"""A search that is killed again and again: `python -m tests.study.killed_search FOLDER` leaves stores and a
report there.

A process of its own, so that it can fork: the library is imported once, and torch has but one thread.
Each child does what the command line does; the parent kills it after a random number of scores, or of milliseconds.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from epochzero import api, data
from epochzero.spaces import nb201
from epochzero.store import Store
from epochzero.study.task import Task
from epochzero.types import Score

KILLS = 16
BUDGET = 340
SHARED = 60
"""the budget of searches that share a store"""
BATCH = 4
"""networks that a search asks for at a time"""
IMAGES = data.pink((3, 8, 8), size=2)


def search(store: Path, method: str, log: Path, budget: int = BUDGET) -> dict[str, Any]:
    """Search; every architecture goes to the log when its score has been computed."""
    computed = Task.score

    def logged(self: Task, archs: Sequence[Any]) -> list[tuple[dict[str, Score], float]]:
        found = []
        for arch in archs:
            found += computed(self, [arch])
            with log.open("a") as file:
                file.write(f"{self.space.text(arch)}\n")
        return found

    Task.score = logged  # type: ignore[method-assign]
    options = {"batch": BATCH} | ({"population": 16, "tournament": 4} if method == "evolution" else {})
    outcome = api.search(
        proxy="l2_norm", method=method, budget=budget, data=IMAGES, seed=1, store=store, options=options
    )
    assert outcome.best is not None
    return {"best": outcome.best.text, "value": outcome.best.score.value, "evaluated": outcome.evaluated}


def begin(work: Callable[[], object]) -> int:
    """The id of a new process that does the work."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return child


def end(child: int) -> None:
    """Wait for a process that has to end well."""
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise SystemExit(f"a search ended with the status {status}")


def undisturbed(store: Path, method: str, log: Path, budget: int = BUDGET) -> None:
    end(begin(lambda: log.with_suffix(".json").write_text(json.dumps(search(store, method, log, budget)))))


def stored(store: Path) -> list[str]:
    if not store.exists():
        return []
    with Store.open(store) as opened:
        return [row.arch for row in opened.all_scores()]


def killed(store: Path, log: Path) -> list[dict[str, Any]]:
    """Kill a search many times, then let it end. For each life: what it found stored, and what it computed."""
    rng, lives = random.Random(0), []
    for life in range(KILLS + 1):
        known, own = stored(store), log.with_suffix(f".{life}.log")
        if life == KILLS:
            undisturbed(store, "evolution", own)
        else:
            child = begin(partial(search, store, "evolution", own))
            patience = rng.randint(1, 25) if life % 4 else 0
            while patience and (not own.exists() or own.read_text().count("\n") < patience):
                time.sleep(0.001)
            time.sleep(rng.uniform(0, 0.002 if life % 4 else 0.06))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        lives.append({"stored": known, "computed": own.read_text().splitlines() if own.exists() else []})
    return lives


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    nb201.CELLS = 1
    api.search(proxy="l2_norm", budget=50, data=IMAGES, seed=1)  # fills registries and caches, for every child
    undisturbed(folder / "calm.db", "evolution", folder / "calm")
    (folder / "lives.json").write_text(json.dumps(killed(folder / "killed.db", folder / "killed")))
    undisturbed(folder / "alone.db", "evolution", folder / "evolution", SHARED)
    undisturbed(folder / "alone.db", "random", folder / "random", SHARED)
    together = [("evolution", "first"), ("evolution", "second"), ("random", "third")]
    children = [begin(partial(search, folder / "shared.db", way, folder / log, SHARED)) for way, log in together]
    for child in children:
        end(child)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
