"""What a population costs the host of a GPU: `python benchmarks/launches.py [--only synflow,dextr] [--networks 128]`.

launches   operations on tensors in a population's passes, views not counted: on a GPU each is a kernel at least
merging    processor milliseconds for planning and merging the networks
scoring    the same for the passes and the proxies, when the kernels themselves cost next to nothing

No GPU is needed: where one would run kernels of ours, stand-ins give tensors of the right shape with ones in them, and
the networks are narrow. The scores mean nothing; what the host does is what it does with a GPU, but for Triton's own
launching.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from epochzero import data
from epochzero.engine import Proxy, reductions, score
from epochzero.plan.ops import conv, fused
from epochzero.registry import spaces
from epochzero.run.bundles import groups
from epochzero.run.network import network_of
from epochzero.spaces import nb201
from epochzero.types import Origin

SHAPE = (3, 8, 8)
FREE = ("aten::detach", "aten::_unsafe_view", "aten::empty", "aten::new_empty")


class Launches(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations that do something."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.name()
        self.count += not (function.is_view or name.startswith(FREE))
        return function(*args, **(kwargs or {}))


def convolve(x: Tensor, weight: Tensor, size: tuple[int, int], maps: int, *window: int) -> Tensor:
    """`window` ends with whether it is the transpose."""
    taps = weight.flatten(2).movedim(2, 0).contiguous()  # the kernel reads them tap by tap, too
    return torch.ones(len(x), maps * taps.shape[2] if window[3] else taps.shape[1], *size)


KERNELS = {
    "conv": SimpleNamespace(
        convolve=lambda *given: convolve(*given[:8]),
        correlate=lambda x, gradient, shape, *window: torch.ones(2, *shape).sum(0),
    ),
    "maps": SimpleNamespace(
        SOURCES=8,
        box=lambda x, large, small, k, s, p, transposed: torch.ones(*x.shape[:2], *(large if transposed else small)),
        gather=lambda out, *_: out.fill_(1.0),
    ),
    "reductions": SimpleNamespace(
        products=lambda a, b: a.new_ones(a.shape[:3]),
        on_together=lambda x: x.new_ones(2, x.shape[1], len(x), len(x)).sum(0),
    ),
}


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """The ways that ops take there, with stand-ins for kernels; narrow networks."""
    with ExitStack() as patches:
        for where, name, what in (
            (fused, "available", lambda x: x.dtype == torch.float32),
            (fused, "gathers", lambda x: True),
            (fused, "_conv", lambda: KERNELS["conv"]),
            (fused, "_maps", lambda: KERNELS["maps"]),
            (reductions, "_kernels", lambda: KERNELS["reductions"]),
            (conv, "slow_in_groups", lambda x: x.dtype == torch.float64),
            (nb201, "WIDTHS", (2, 2, 2)),
        ):
            patches.enter_context(mock.patch.object(where, name, what))
        yield


def measured(members: list[Proxy], networks: int, rounds: int) -> dict[str, float]:
    """The least of several populations of other networks, as a busy machine slows some down; the first one warms up."""
    batch, space = data.load("pink", input_shape=SHAPE, num_classes=10, size=2), spaces["nb201"]
    counted, merging, scoring = 0, [], []
    for seed in range(rounds + 1):
        rng = Random(seed)
        found = [network_of(space, space.sample(rng), batch, Origin(), "cpu") for _ in range(networks)]
        start = time.process_time()
        prepared = score._prepared(found, "always")
        middle = time.process_time()
        if seed:
            score._score(prepared, members, batch, 0, "always")
            merging.append(1e3 * (middle - start))
            scoring.append(1e3 * (time.process_time() - middle))
        else:
            counted = launched(prepared, members, batch)
    return {"launches": counted, "merging": round(min(merging), 1), "scoring": round(min(scoring), 1)}


def launched(prepared: score.Prepared, members: list[Proxy], batch: data.Batch) -> int:
    """In the passes; what proxies make of it, network by network on the CPU, is not counted."""
    counter, run = Launches(), score._together

    def counting(*given: Any) -> Any:
        with counter:
            return run(*given)

    with mock.patch.object(score, "_together", counting):
        score._score(prepared, members, batch, 0, "always")
    return counter.count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="one batch,four batches,dextr,synflow,zen,grasp")
    parser.add_argument("--networks", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=8)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    gc.freeze()
    with as_on_a_gpu():
        rows = {name: measured(members, asked.networks, asked.rounds) for name, members in groups(asked.only).items()}
    print(json.dumps({"networks": asked.networks, "torch": torch.__version__} | rows, indent=1))


if __name__ == "__main__":
    main()
