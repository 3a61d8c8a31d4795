"""Scores one network: runs each pass that the proxies need once."""

from __future__ import annotations

from collections.abc import Sequence

from epochzero.data import Batch
from epochzero.engine.gpu.arena import failed
from epochzero.engine.network import Network
from epochzero.engine.pending import Pending, Scores, unless_full
from epochzero.engine.proxy import Proxy
from epochzero.engine.single.run import run_pass
from epochzero.errors import MachineError


def score_alone(network: Network, proxies: Sequence[Proxy], batch: Batch, seed: int) -> Scores:
    """Returns the scores of one network; MachineError if memory runs out.

    If a kernel could not be compiled, all proxies are computed again without kernels.
    """
    without_kernels, pending = failed(), Pending(proxies, 1)
    with unless_full():
        pending.compute()  # those that need no pass
        for run, items in pending.passes().items():
            pending.results[run] = [run_pass(run, items, network, batch, seed)]
            pending.compute()
    if (scores := pending.scores()) is not None:
        return scores[0]
    del pending
    if failed() and not without_kernels:
        return score_alone(network, proxies, batch, seed)
    raise MachineError(
        f"Out of memory on one network with {network.params:,} parameters at batch size {batch.size}: "
        "use a smaller --batch-size, or a machine with more memory."
    )
