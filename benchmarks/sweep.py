"""Score many networks with many proxies, in several processes that share one device, into a CSV file.

    python benchmarks/sweep.py --networks 1000 --proxies dextr,zico --data cifar10.npz --workers 8 --out scores.csv

Needs torch and numpy alone (PYTHONPATH=src where the package is not installed). Networks are drawn uniformly from the
space by seed, or read from a text file, one architecture a line.
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import torch
import torch.multiprocessing as mp

from epochzero import data
from epochzero.engine import PlanNetwork, parse_list, score_population
from epochzero.registry import spaces
from epochzero.types import Origin


def work(rank: int, asked: argparse.Namespace, archs: list[str], done: Any) -> None:
    """Score every workers-th network."""
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False
    space = spaces[asked.space]
    batch = data.load(asked.data, size=asked.batch_size, seed=asked.data_seed)
    proxies = parse_list(asked.proxies)
    own = archs[rank :: asked.workers]
    for first in range(0, len(own), asked.population):
        texts = own[first : first + asked.population]
        plans = [space.plan(space.parse(text), batch.num_classes, batch.input_shape) for text in texts]
        networks = [PlanNetwork(plan, Origin(asked.init, asked.seed), asked.device) for plan in plans]
        for text, scored in zip(texts, score_population(networks, proxies, batch, asked.seed), strict=True):
            rows = [(text, name, s.value if s.ok else "", s.status, s.why) for name, s in scored.scores.items()]
            done.put((rows, scored.seconds))
    done.put(None)


def main() -> None:
    """Start the workers, write rows as they come, and say how long it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--space", default="nb201")
    parser.add_argument("--networks", type=int, default=100)
    parser.add_argument("--archs", type=Path, help="a text file with one architecture a line")
    parser.add_argument("--proxies", default="dextr")
    parser.add_argument("--data", default="pink")
    parser.add_argument("--data-seed", type=int, default=0)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--init", default="default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--population", type=int, default=32, help="networks that run side by side on a GPU")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    space = spaces[asked.space]
    if asked.archs is not None:
        archs = asked.archs.read_text(encoding="utf-8").split()
    else:
        rng = Random(asked.seed)
        archs = [space.text(space.sample(rng)) for _ in range(asked.networks)]
    start = time.perf_counter()
    context = mp.get_context("spawn")
    done = context.Queue()
    workers = [context.Process(target=work, args=(rank, asked, archs, done)) for rank in range(asked.workers)]
    for worker in workers:
        worker.start()
    running, scored, seconds = len(workers), 0, 0.0
    with asked.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["arch", "proxy", "value", "status", "why"])
        while running:
            item = done.get()
            if item is None:
                running -= 1
                continue
            writer.writerows(item[0])
            file.flush()
            scored, seconds = scored + 1, seconds + item[1]
            if scored % 50 == 0:
                print(f"{scored}/{len(archs)} {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    facts = {
        "networks": scored,
        "wall seconds": time.perf_counter() - start,
        "worker seconds a network": seconds / max(scored, 1),
        "device": torch.cuda.get_device_name() if asked.device.startswith("cuda") else platform.processor(),
        "torch": torch.__version__,
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
