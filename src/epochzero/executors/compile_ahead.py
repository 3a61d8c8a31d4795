"""Worker processes on a GPU compile what they will all need together, before the first of them scores.

See `epochzero.engine.gpu.compiling` for how they share the work out.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from random import Random

from epochzero.engine import score_population
from epochzero.engine.gpu import compiling
from epochzero.engine.population.grouping import MemoryBudget, in_groups
from epochzero.engine.space_networks import network_of
from epochzero.study.task import Task

NETWORKS = 12
"""of the space, drawn at random: enough for every operation to be among them"""


def compile_share(task: Task, folder: Path) -> None:
    """Compile a share of the kernels by which the task is scored; returns when others have done theirs.

    What goes wrong here is left to scoring: numbers are those that lay in memory, and what does not fit is said there.
    """
    if not hasattr(task.space, "sample"):
        return
    rng = Random(0)
    with suppress(Exception), compiling.together(folder):
        archs = [task.space.sample(rng) for _ in range(NETWORKS)]
        networks = [network_of(task.space, arch, task.batch, task.origin, task.device) for arch in archs]
        needs = [need for proxy in task.proxies for need in proxy.needs]
        groups = in_groups(networks, needs, task.batch, "auto", MemoryBudget())
        score_population(next(groups), task.proxies, task.batch, task.origin.seed)  # one network if each runs alone
