"""Compares the predicted peak memory of networks with what torch's allocator records on a CPU.

    python -m benchmarks.peak_memory

For one sample, without gradients: the weights, the input, and the most bytes that torch has allocated when an operation
ends. The last column counts what kernels allocate and free while they run too. `nn.MultiheadAttention` and its layers
run operation by operation, as they do where their fast path does not apply.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from epochzero import data
from epochzero.data import Batch
from epochzero.engine import Network, PlanNetwork
from epochzero.engine.memory import peak_bytes
from epochzero.engine.modules.module_network import ModuleNetwork
from epochzero.engine.space_networks import batch_for
from epochzero.registry import spaces

SPACES = ("nb201", "nb101", "darts", "mobilenet", "resnet", "autoformer_tiny", "nats_sss", "transnas_micro", "mnasnet")


class Peak(NamedTuple):
    """Bytes."""

    tensors: int
    with_workspaces: int


def measured(module: nn.Module, x: Tensor) -> Peak:
    """The peak of one run."""
    module.eval()
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            module(x)
            with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
                module(x)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    events = recorded.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    ends, reached = [], 0
    for start, end in sorted((e.start_ns(), e.start_ns() + e.duration_ns()) for e in events if e.name() != "[memory]"):
        if start >= reached:  # not inside another operation
            ends.append((end, 0))
            reached = end
    now = tensors = whole = 0
    for _, change in sorted([*changes, *ends], key=lambda event: event[0]):
        now += change
        whole = max(whole, now)
        if not change:
            tensors = max(tensors, now)
    kept = {t.untyped_storage().data_ptr(): t.nbytes for t in (x, *module.parameters(), *module.buffers())}
    held = sum(kept.values())
    return Peak(held + tensors, held + whole)


class Case(NamedTuple):
    """A network as the engine runs it, and as anyone does."""

    name: str
    network: Network
    batch: Batch
    module: nn.Module
    x: Tensor


def of_spaces(names: tuple[str, ...] = SPACES) -> Iterator[Case]:
    """A sample of each space."""
    for name in names:
        batch = batch_for(spaces[name], "pink", size=2, parts=1)
        plan = spaces[name].plan(spaces[name].sample(Random(0)), batch.num_classes, batch.input_shape)
        yield Case(name, PlanNetwork(plan), batch, plan.module(), batch.part(0)[0][:1])


def of_modules(width: int = 32, depth: int = 3, side: int = 64) -> Iterator[Case]:
    """One network of each kind of the tests' table."""
    from tests.engine.modules import zoo

    zoo.SIDE = side
    for kind, make in zoo.KINDS.items():
        module = make(width, depth).eval()
        x = torch.randint(zoo.WORDS, (2, zoo.TIME)) if kind == "causal LM" else torch.randn(2, 3, side, side)
        batch = data.from_tensors(x)
        yield Case(kind, ModuleNetwork(module, batch), batch, module, x[:1])


def main() -> None:
    torch.manual_seed(0)
    print("| network | predicted MiB | measured MiB | difference | with workspaces MiB |\n|---|---|---|---|---|")
    for name, network, batch, module, x in (*of_spaces(), *of_modules()):
        peak, found = peak_bytes(network, batch), measured(module, x)
        assert peak is not None
        tensors, workspaces = (f"{size / 2**20:.3f}" for size in found)
        print(f"| {name} | {peak / 2**20:.3f} | {tensors} | {peak / found.tensors - 1:+.1%} | {workspaces} |")


if __name__ == "__main__":
    main()
