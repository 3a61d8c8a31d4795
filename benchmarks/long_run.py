"""Memory, handles, threads and temporary files of one process that scores many networks.

    python benchmarks/long_run.py                     # 10,000 networks of a small nb201, by six proxies

Half of the networks are scored by a search with a store, the others as modules of their own, by `ez.score`. What the
process holds is shown as it goes.
"""

from __future__ import annotations

import argparse
import gc
import re
import tempfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import torch

import epochzero as ez
from epochzero import data
from epochzero.executors.local import Local
from epochzero.registry import spaces
from epochzero.spaces import nb201

PROXIES = "l2_norm,naswot,grad_norm,synflow,dextr,params"
IMAGES = data.pink((3, 8, 8), size=4)


class Held(NamedTuple):
    """Memory, handles and files of this process."""

    networks: int
    megabytes: float
    handles: int
    threads: int
    temporary: int
    """files in the folder for temporary ones"""
    objects: int
    """that the garbage collector knows"""


def held(networks: int) -> Held:
    gc.collect()
    status = Path("/proc/self/status").read_text()
    resident = re.search(r"VmRSS:\s+(\d+)", status)
    assert resident is not None
    files = sum(1 for _ in Path(tempfile.gettempdir()).rglob("*"))
    handles = len(list(Path("/proc/self/fd").iterdir()))
    return Held(networks, int(resident[1]) / 1024, handles, threading.active_count(), files, len(gc.get_objects()))


def run(networks: int, store: Path, every: int) -> Iterator[Held]:
    """Scores networks, and yields what the process holds after each part."""
    space, rng = spaces["nb201"], Random(0)
    whole = networks // 2
    yield held(0)
    for budget in range(every, whole + 1, every):  # each search finds the networks of the one before in its store
        ez.search(
            proxy="rank(l2_norm,naswot,dextr)",
            method="random",
            budget=budget,
            data=IMAGES,
            store=store,
            executor=Local(1),
        )
        yield held(budget)
    for number in range(1, networks - whole + 1):
        module = space.plan(space.sample(rng), 10, (3, 8, 8)).module()
        scores = ez.score(module, PROXIES, data=IMAGES)
        assert len(scores) == len(PROXIES.split(","))
        if number % every == 0:
            yield held(whole + number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=10_000)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    nb201.CELLS = 1
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        print(
            "| networks | MB | handles | threads | temporary files | objects |\n|---|---|---|---|---|---|", flush=True
        )
        for row in run(asked.networks, Path(folder) / "run.db", asked.networks // 10):
            print(f"| {row.networks:,} | {row.megabytes:.0f} | {' | '.join(f'{n:,}' for n in row[2:])} |", flush=True)


if __name__ == "__main__":
    main()
