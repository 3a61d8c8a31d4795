"""Scores of networks: a population in, one `{proxy: Score}` for each out."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from epochzero.data import Batch
from epochzero.engine.failure import LinAlgError, PassFailedError, blaming, out_of_memory
from epochzero.engine.network import Network
from epochzero.engine.passes import Pass
from epochzero.engine.proxy import Proxy
from epochzero.engine.run import merged, run_pass, trace
from epochzero.engine.watch import Item
from epochzero.errors import DegenerateError, MachineError
from epochzero.types import Score

MISFITS = (RuntimeError, ValueError, IndexError, ArithmeticError)
"""what a proxy raises over shapes and numbers that it was not made for; other errors are bugs"""


@dataclass(frozen=True)
class Scored:
    """What the proxies say of one network, and how long they took."""

    scores: dict[str, Score]
    """by `Proxy.text`"""
    seconds: float


def score_population(networks: Iterable[Network], proxies: Sequence[Proxy], batch: Batch, seed: int) -> list[Scored]:
    """Score each network, one after the other as they come. Scores never depend on the neighbours."""
    return [score_network(network, proxies, batch, seed) for network in networks]


def score_network(network: Network, proxies: Sequence[Proxy], batch: Batch, seed: int) -> Scored:
    """Run every pass that the proxies need once, and let each proxy read what it asked for."""
    start = time.perf_counter()
    needs = {proxy.text: proxy.needs for proxy in proxies}
    results: dict[Pass, dict[Item, object]] = {}
    for run, items in merged(need for of_proxy in needs.values() for need in of_proxy).items():
        try:
            results[run] = run_pass(run, items, network, batch, seed)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            raise MachineError(
                f"Out of memory on one network with {network.params:,} parameters at batch size {batch.size}: "
                "use a smaller --batch-size, or a machine with more memory."
            ) from None
    return Scored({proxy.text: _compute(proxy, results) for proxy in proxies}, time.perf_counter() - start)


def _compute(proxy: Proxy, results: dict[Pass, dict[Item, object]]) -> Score:
    try:
        traces = [trace(need, results[need.run]) for need in proxy.needs]
        with torch.no_grad(), blaming("the proxy", MISFITS):
            value = float(proxy.compute(*traces, **proxy.resolved))
    except PassFailedError as reason:
        return Score.failed(str(reason))
    except DegenerateError as reason:
        return Score.degenerate(str(reason))
    except LinAlgError as error:
        return Score.degenerate(f"the linear algebra did not converge: {error}")
    if not math.isfinite(value):
        return Score.degenerate(f"the value is {value}")
    return Score(value)
