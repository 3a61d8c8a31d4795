"""Time of a population on the host of a GPU: `python benchmarks/launches.py [--only synflow,dextr] [--networks 128]`.

launches   operations on tensors in a population's passes, views not counted: on a GPU each is a kernel at least
merging    processor milliseconds for planning, grouping and merging the networks
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
from epochzero.engine import Proxy
from epochzero.engine.gpu import arena, fused
from epochzero.engine.gpu.arena import Moments, Source, Window
from epochzero.engine.gpu.routine import blocks_with_routines
from epochzero.engine.population import grouped_kernels, grouping, population, reductions
from epochzero.engine.population import scoring as population_scoring
from epochzero.engine.population.scoring import Prepared, _prepared, score_prepared
from epochzero.engine.space_networks import network_of
from epochzero.objectives.bundles import groups
from epochzero.registry import spaces
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


def taps(weight: Tensor) -> Tensor:
    """The kernels read them tap by tap."""
    return weight.flatten(2).movedim(2, 0).contiguous()


def beside(
    x: Tensor, weight: Tensor, size: tuple[int, int], maps: int, _: object, transposed: bool, *on: object
) -> Tensor:
    each = taps(weight)
    return torch.ones(len(x), maps * each.shape[2] if transposed else each.shape[1], *size)


def convolve(out: Tensor, _: object, slots: Tensor, weight: Tensor, *more: Any) -> Moments:
    taps(weight)
    out.fill_(1.0)
    return Moments(torch.ones(len(out), 2, 2, out.shape[-1]), 64)


def convolve_back(out: Tensor, _: Tensor, weight: Tensor, *more: object) -> None:
    taps(weight)
    out.fill_(1.0)


def correlate(place: Source, _: Tensor, relu: bool, gradient: Tensor, window: Window) -> Tensor:
    shape = len(gradient), gradient.shape[-1], place.arena.shape[-1], window[0], window[0]
    return torch.ones(2, *shape).sum(0)


def settle(coefficients: Tensor, *more: object) -> None:
    coefficients.fill_(1.0)


def norm_back(out: Tensor, *more: object) -> tuple[Tensor, Tensor]:
    for _ in range(2):
        totals = torch.ones(len(out), 2, out.shape[-1])
    out.fill_(1.0)
    return totals[:, 0], totals[:, 1]


def convolve_jvp(out: Tensor, _: object, slots: Tensor, weights: tuple[Tensor, Tensor], *more: object) -> None:
    for weight in weights:
        taps(weight)
    out.fill_(1.0)


def norm_back_jvp(out: tuple[Tensor, Tensor], arena: Tensor, *more: object) -> None:
    torch.ones(len(out[0]), 7, arena.shape[-1]).fill_(1.0)
    out[0].fill_(1.0)
    out[1].fill_(1.0)


def fill(out: Tensor, *more: object) -> None:
    out.fill_(1.0)


ROUTINES = SimpleNamespace(
    combine=fill,
    convolve=convolve,
    convolve_back=convolve_back,
    correlate=correlate,
    settle=settle,
    norm_back=norm_back,
    pool=fill,
    moments=lambda place, slots: Moments(torch.ones(len(slots), 2, 2, place.arena.shape[-1]), 64),
    convolve_jvp=convolve_jvp,
    convolve_back_jvp=lambda out, _, weights, *more: convolve_jvp(out, _, out, weights),
    correlate_jvp=lambda pair, slots, relu, gradients, window: correlate(pair[0], slots, relu, gradients[0], window),
    norm_back_jvp=norm_back_jvp,
    convolve_joint=beside,
    correlate_joint=lambda x, gradient, shape, maps, window: torch.ones(2, *shape).sum(0),
    SOURCES=8,
    box=lambda x, large, small, k, s, p, transposed: torch.ones(*x.shape[:2], *(large if transposed else small)),
    gather=lambda out, *_: out.fill_(1.0),
    products=lambda a, b: a.new_ones(a.shape[:3]),
    agreements=lambda x: x.new_ones(2, x.shape[1], len(x), len(x)).sum(0),
    mark=lambda shown, *more: shown.fill_(1),
    products_at=lambda a, slots, b, _: a.arena.new_ones(a.arena.shape[1], len(slots), a.arena.shape[-1]),
    agreements_at=lambda a, slots: a.arena.new_ones(2, len(slots), *a.arena.shape[1:2] * 2).sum(0),
)


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """The ways that ops take there, with stand-ins for kernels; narrow networks."""
    with ExitStack() as patches:
        for where, name, what in (
            (fused, "available", lambda x: x.dtype == torch.float32),
            (fused, "gathers", lambda x: True),
            (grouping, "_routines", lambda network: blocks_with_routines(network.plan)),
            (population, "runs_here", lambda x: True),
            (arena, "kernels", lambda: ROUTINES),
            (reductions, "runs_here", lambda x: True),
            (grouped_kernels, "slow_in_groups", lambda x: x.dtype == torch.float64),
            (nb201, "WIDTHS", (2, 2, 2)),
        ):
            patches.enter_context(mock.patch.object(where, name, what))
        yield


def measured(members: list[Proxy], networks: int, rounds: int) -> dict[str, float]:
    """The least of several populations of other networks, as a busy machine slows some down; the first one warms up."""
    batch, space = data.load("pink", input_shape=SHAPE, num_classes=10, size=2), spaces["nb201"]
    needs = [need for proxy in members for need in proxy.needs]
    counted, merging, scoring = 0, [], []
    for seed in range(rounds + 1):
        rng = Random(seed)
        found = [network_of(space, space.sample(rng), batch, Origin(), "cpu") for _ in range(networks)]
        start = time.process_time()
        (group,) = grouping.in_groups(found, needs, batch, "always", grouping.MemoryBudget())
        prepared = _prepared(group, "always")
        middle = time.process_time()
        if seed:
            score_prepared(prepared, members, batch, 0, "always")
            merging.append(1e3 * (middle - start))
            scoring.append(1e3 * (time.process_time() - middle))
        else:
            counted = launched(prepared, members, batch)
    return {"launches": counted, "merging": round(min(merging), 1), "scoring": round(min(scoring), 1)}


def launched(prepared: Prepared, members: list[Proxy], batch: data.Batch) -> int:
    """In the passes; what proxies make of it, network by network on the CPU, is not counted."""
    counter, run = Launches(), population_scoring._together

    def counting(*given: Any) -> Any:
        with counter:
            return run(*given)

    with mock.patch.object(population_scoring, "_together", counting):
        score_prepared(prepared, members, batch, 0, "always")
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
