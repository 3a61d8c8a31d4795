"""Proxies that wait for the passes that they need, and the scores of those that are computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from epochzero.engine.failure import (
    REASONS,
    KernelError,
    LinAlgError,
    PassFailedError,
    blame,
    device_failed,
    not_of_the_network,
    out_of_memory,
)
from epochzero.engine.gpu.arena import give_up
from epochzero.engine.gpu.side_stream import on_side_stream
from epochzero.engine.passes import Item, Need, Pass, merged
from epochzero.engine.population.columns import ResultColumns
from epochzero.engine.proxy import Proxy
from epochzero.engine.reads import NEED_GRAPH
from epochzero.engine.trace import PassResult, Trace, refusals, trace
from epochzero.errors import MachineError, UserError
from epochzero.types import Score

MISFITS = (RuntimeError, ValueError, IndexError, ArithmeticError)
"""errors of proxies on shapes and values that they do not support; other errors are bugs"""
Scores = dict[str, Score]
"""by `Proxy.text`"""


class Pending:
    """The proxies of some networks that wait for passes.

    A proxy is computed as soon as its passes are done, and a pass is freed when no other proxy waits for it, so that
    its results do not share memory with the graph of another.
    """

    def __init__(self, proxies: Sequence[Proxy], networks: int) -> None:
        self.proxies, self.networks = proxies, networks
        self.results: dict[Pass, PassResult] = {}
        """results of passes that proxies still need"""
        self._waiting = [(proxy, proxy.needs) for proxy in proxies]
        self._columns: dict[str, list[Score]] = {}
        """of each network, by `Proxy.text`"""

    def passes(self) -> dict[Pass, list[Item]]:
        """Returns the passes to run with what is read of each: those without a graph first."""
        passes = merged(need for _, needs in self._waiting for need in needs)
        return dict(sorted(passes.items(), key=lambda one: bool({name for name, _ in one[1]} & NEED_GRAPH)))

    def compute(self) -> None:
        """Computes the proxies whose passes are all done, and frees the passes that no other proxy needs."""
        for proxy, needs in self._waiting:
            if proxy.text not in self._columns and all(need.run in self.results for need in needs):
                results = [self.results[need.run] for need in needs]
                marks = [one.launched for one in results if isinstance(one, ResultColumns)]
                with on_side_stream(marks) if marks and len(marks) == len(results) else nullcontext():
                    self._columns[proxy.text] = _computed(proxy, needs, results, self.networks)
        self._waiting = [(proxy, needs) for proxy, needs in self._waiting if proxy.text not in self._columns]
        needed = {need.run for _, needs in self._waiting for need in needs}
        self.results = {run: result for run, result in self.results.items() if run in needed}

    def scores(self) -> list[Scores] | None:
        """Returns the scores of each network; None while proxies wait."""
        if self._waiting:
            return None
        columns = [(proxy.text, self._columns[proxy.text]) for proxy in self.proxies]
        return [{text: column[p] for text, column in columns} for p in range(self.networks)]


@contextmanager
def unless_full() -> Iterator[None]:
    """Leaves the block, without an error, if memory runs out in it, or a kernel cannot be compiled."""
    try:
        yield
    except KernelError as error:
        give_up(error)
    except (RuntimeError, MemoryError) as error:
        if device_failed(error):
            reason = str(error).strip().splitlines()[0]
            raise MachineError(
                f"The GPU failed ({reason}). What was stored before is safe: repeat the command, which resumes there."
            ) from error
        if not out_of_memory(error):
            raise


def _computed(proxy: Proxy, needs: Sequence[Need], results: Sequence[PassResult], count: int) -> list[Score]:
    """Returns the proxy's score of each network."""
    pairs, settings = list(zip(needs, results, strict=True)), proxy.resolved
    with torch.no_grad():
        refused = {p: why for pair in reversed(pairs) for p, why in refusals(*pair).items()}
        return [
            _without_value(refused[p])
            if p in refused
            else _value(proxy.compute, [trace(need, own, p) for need, own in pairs], settings)
            for p in range(count)
        ]


def _value(compute: Callable[..., Any], traces: Sequence[Trace], settings: dict[str, Any]) -> Score:
    try:
        value = float(compute(*traces, **settings))
    except REASONS as reason:
        return _without_value(reason)
    except UserError:
        raise
    except MISFITS as error:
        if not_of_the_network(error):
            raise
        return Score.failed(blame("the proxy", error))
    return Score(value) if math.isfinite(value) else Score.degenerate(f"the value is {value}")


def _without_value(reason: Exception) -> Score:
    if isinstance(reason, PassFailedError):
        return Score.failed(str(reason))
    unsolved = isinstance(reason, LinAlgError)
    return Score.degenerate(f"the linear algebra did not converge: {reason}" if unsolved else str(reason))
