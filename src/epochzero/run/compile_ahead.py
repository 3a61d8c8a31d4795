"""Worker processes on a GPU compile what they will all need together, before the first of them scores.

See `epochzero.plan.ops.compiling` for how they share the work out.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from epochzero.engine import score_population
from epochzero.errors import MachineError
from epochzero.plan.ops import compiling
from epochzero.run.network import network_of
from epochzero.run.task import Task

NETWORKS = 12
"""of the space, drawn at random: enough for every operation to be among them"""

folder: Path | None = None
"""that this process shares with other workers, if it does"""


def compile_share(task: Task) -> None:
    """Compile a share of the kernels by which the task is scored; returns when others have done theirs."""
    if folder is None or task.device == "cpu" or not hasattr(task.space, "sample"):
        return
    rng = Random(0)
    archs = [task.space.sample(rng) for _ in range(NETWORKS)]
    networks = [network_of(task.space, arch, task.batch, task.origin, task.device) for arch in archs]
    try:
        with compiling.together(folder):
            score_population(networks, task.proxies, task.batch, task.origin.seed)
    except MachineError:
        return  # what does not fit into memory is said when it is asked for
