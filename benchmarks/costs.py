"""Costs of each proxy, and of all together: time and peak memory for one network (`make bench`).

    python benchmarks/costs.py --space nb201 --batch-size 64
    python benchmarks/costs.py --space autoformer_tiny --arch smallest --batch-size 8
    python benchmarks/costs.py --space darts --batch-size 16 --only-together --but swap,swap_reg

Each measurement has a process of its own, so that memory is counted from the same start. Peak memory is what scoring
adds to the loaded library, the weights and the data. Rounds go through all proxies in turn: a slow moment of the
machine hits everybody. Times are medians; the ratio compares all together with the sum of all apart.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import resource
import sys
import time
from collections.abc import Sequence
from random import Random
from statistics import median
from typing import Any, NamedTuple

import torch

from epochzero import data
from epochzero.engine import PlanNetwork, parse, score_network
from epochzero.registry import proxies, spaces

KERNELS = ("hnas", "nasi_trace_sum", "ntk_cond", "ntk_trace")
"""one backward pass for each row of a kernel: many times the cost of all others"""


class Cost(NamedTuple):
    seconds: float
    megabytes: float
    status: str
    """of the score; for several the number that have a value"""


class Job(NamedTuple):
    space: str
    arch: str
    batch_size: int
    threads: int
    device: str


def cost(job: Job, names: Sequence[str]) -> Cost:
    """Score one network with these proxies, measured in this process."""
    torch.set_num_threads(job.threads)
    space = spaces[job.space]
    plan = space.plan(space.smallest() if job.arch == "smallest" else space.parse(job.arch))
    batch = data.load("pink", num_classes=plan.output_shape[0], input_shape=plan.input_shape, size=job.batch_size)
    network = PlanNetwork(plan, device=job.device)
    for part in range(4):
        batch.part(part)
    warm = len(network.weights), torch.ones(64, 64, device=job.device) @ torch.ones(64, 64, device=job.device)
    before = _peak(job.device)
    start = time.perf_counter()
    scores = score_network(network, [parse(name) for name in names], batch, 0).scores
    if job.device != "cpu":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    del warm
    found = [score.status for score in scores.values()]
    why = sorted({f"{name}: {score.why}" for name, score in scores.items() if not score.ok})
    status = found[0] if len(found) == 1 else "; ".join([f"{found.count('ok')} of {len(found)} ok", *why])
    return Cost(seconds, _peak(job.device) - before, status)


def _peak(device: str) -> float:
    if device != "cpu":
        return torch.cuda.max_memory_allocated() / 2**20
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes / 2**10


def measured(job: Job, names: Sequence[str]) -> Cost:
    """The same in a fresh process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["epochzero.engine", "epochzero.data"])
    with context.Pool(1) as pool:
        return pool.apply(cost, (job, names))


def table(job: Job, names: Sequence[str], rounds: int) -> dict[str, Any]:
    """Every proxy alone and all together, and the ratio."""
    groups = {name: [name] for name in names} | {"together": list(names)}
    found: dict[str, list[Cost]] = {group: [] for group in groups}
    for _ in range(rounds):
        for group, members in groups.items():
            found[group].append(measured(job, members))
            print(f"  {group}: {found[group][-1].seconds:.2f} s", file=sys.stderr)
    rows = {
        group: {
            "ms": round(1e3 * median(c.seconds for c in costs), 1),
            "peak MiB": round(median(c.megabytes for c in costs), 1),
            "status": costs[0].status,
        }
        for group, costs in found.items()
    }
    apart = [sum(found[name][i].seconds for name in names) for i in range(rounds)]
    ratio = median(found["together"][i].seconds / apart[i] for i in range(rounds))
    return {"costs": rows, "together/apart": round(ratio, 3)}


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--space", default="nb201")
    parser.add_argument("--arch", help="an architecture's text, or `smallest`; default: a random one of seed 0")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--proxies", help="names, separated by commas; default: all but those with a tangent kernel")
    parser.add_argument("--kernels", action="store_true", help="those with a tangent kernel too")
    parser.add_argument("--but", default="", help="names to leave out, separated by commas")
    parser.add_argument("--only-together", action="store_true", help="all proxies in one call, and none alone")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    asked = parser.parse_args()
    space = spaces[asked.space]
    arch = asked.arch or space.text(space.sample(Random(0)))
    job = Job(asked.space, arch, asked.batch_size, asked.threads, asked.device)
    names = asked.proxies.split(",") if asked.proxies else [n for n in proxies if asked.kernels or n not in KERNELS]
    names = [name for name in names if name not in asked.but.split(",")]
    facts = {**job._asdict(), "rounds": asked.rounds, "torch": torch.__version__, "machine": platform.machine()}
    if asked.only_together:
        found = measured(job, names)
        print(json.dumps({**facts, "seconds": found.seconds, "peak MiB": found.megabytes, "scores": found.status}))
        return
    print(json.dumps({**facts, **table(job, names, asked.rounds)}, indent=1))


if __name__ == "__main__":
    main()
