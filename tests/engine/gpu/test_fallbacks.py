"""A kernel that does not compile, a GPU that fails, memory that runs out, devices that are not there: on a CPU."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from epochzero import data
from epochzero.engine import PlanNetwork, score_population
from epochzero.engine.device import usable
from epochzero.engine.failure import KernelError, device_failed, out_of_memory
from epochzero.engine.gpu import arena
from epochzero.engine.population import population, scoring
from epochzero.engine.population.grouping import MemoryBudget
from epochzero.engine.population.joint_run import run_together
from epochzero.engine.single import score as single
from epochzero.errors import MachineError, UserError
from epochzero.types import Score
from tests.engine.gpu.plain_kernels import PLAIN
from tests.engine.population.test_lockstep import SHAPE, assert_equal, precise, some_plans

BATCH = data.load("pink", input_shape=SHAPE, num_classes=3, size=4)
ASKED = [precise(name) for name in ("grad_norm", "naswot", "zico")]
pytestmark = pytest.mark.usefixtures("shallow_nb201")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process in which no kernel has failed."""
    monkeypatch.setattr(arena._State, "failed", False)
    yield


def scored(count: int, how: Any = "always", memory: MemoryBudget | None = None) -> list[dict[str, Score]]:
    networks = [PlanNetwork(plan) for plan in some_plans("nb201", count, seed=3)]
    return [one.scores for one in score_population(networks, ASKED, BATCH, 0, how, memory)]


@pytest.mark.parametrize("kernel", ["convolve", "correlate", "norm_back"])
def test_a_kernel_that_does_not_compile_falls_back_and_says_so_once(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def broken(*_: Any, **__: Any) -> Any:
        calls.append(kernel)
        raise KernelError(f"{kernel}: CompilationError: no C compiler")

    alone = scored(3, "never")
    monkeypatch.setattr(arena, "kernels", lambda: SimpleNamespace(**vars(PLAIN) | {kernel: broken}))
    monkeypatch.setattr(population, "runs_here", lambda _: not arena.failed())
    memory = MemoryBudget()
    before = memory.share
    with pytest.warns(RuntimeWarning, match=f"could not be compiled, .*{kernel}: CompilationError: no C"):
        together = scored(3, memory=memory)
    for one, other in zip(together, alone, strict=True):
        assert_equal(one, other)
    assert (len(calls), memory.share) == (1, before)
    with warnings.catch_warnings(action="error"):
        again = scored(3)
    assert again == together and len(calls) == 1, "no kernel is tried again"


def test_the_launch_of_a_kernel_says_why_it_failed() -> None:
    def fails(error: Exception) -> Any:
        def launch() -> None:
            raise error

        return launch

    with pytest.raises(KernelError, match=r"^conv: RuntimeError: Failed to find C compiler$"):
        arena.launched("conv", fails(RuntimeError("Failed to find C compiler\nsee the manual")))
    for error in (torch.OutOfMemoryError("full"), RuntimeError("CUDA error: an illegal memory access")):
        with pytest.raises(type(error), match=str(error)):
            arena.launched("conv", fails(error))
    assert not isinstance(KernelError(""), RuntimeError), "or it would be a property of the network"


def test_memory_that_runs_out_makes_populations_smaller_and_leaves_the_batch_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[tuple[int, int]] = []

    def full(run: Any, items: Any, of: Any, batch: Any, seed: int) -> Any:
        sizes.append((of.size, batch.size))
        if of.size > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return run_together(run, items, of, batch, seed)

    alone = scored(5, "never")
    monkeypatch.setattr(scoring, "run_together", full)
    for one, other in zip(scored(5), alone, strict=True):
        assert_equal(one, other)
    assert sizes[0][0] == 5 and {size for size, _ in sizes} <= {5, 3, 2, 1}
    assert {samples for _, samples in sizes} == {BATCH.size}


def test_a_gpu_that_fails_ends_the_run_and_is_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any) -> Any:
        raise RuntimeError("CUDA error: unspecified launch failure\nCUDA kernel errors might be reported later")

    monkeypatch.setattr(single, "run_pass", lost)
    with pytest.raises(MachineError, match=r"^The GPU failed \(CUDA error: unspecified launch failure\)\. What"):
        scored(2, "never")


def test_words_of_errors() -> None:
    full, gone = RuntimeError("CUDA error: out of memory"), RuntimeError("CUDA error: device-side assert triggered")
    assert (out_of_memory(full), device_failed(full)) == (True, False)
    assert (out_of_memory(gone), device_failed(gone)) == (False, True)


def test_kernels_that_failed_count_as_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena, "installed", lambda: True)
    assert arena.usable()
    with pytest.warns(RuntimeWarning):
        arena.give_up(KernelError("conv"))
    assert not arena.usable()


@pytest.mark.parametrize(
    ("device", "says"),
    [
        ("tpu", r"^The device 'tpu' cannot be used here \(torch knows no such device\): try cpu\.$"),
        ("cuda:x", r"^The device 'cuda:x' cannot be used here \(torch knows no such device\): try cpu\.$"),
        ("cuda:99", r"^The device 'cuda:99' cannot be used here \([^\n]+\): try cpu\.$"),
    ],
)
def test_an_unknown_device_is_one_sentence(device: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        usable(device)


def test_a_gpu_that_another_process_has_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: Any, **__: Any) -> Any:
        raise RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable\nCUDA kernel errors might")

    monkeypatch.setattr(torch, "ones", busy)
    with pytest.raises(UserError, match="another process has it to itself, or left it so: wait, or look at nvidia-smi"):
        usable("cuda")
