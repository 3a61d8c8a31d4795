"""A capture that fails warns and leaves the run as it was; stand-ins take the place of a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from epochzero.engine.gpu import replay
from epochzero.engine.gpu.graph import capture, own_stream
from epochzero.train import step


class FakeCuda:
    """Notes which stream is current; a capture fails as `error` says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
        self.stream = "first"
        self.options: dict[str, Any] = {}
        self.replays = 0
        self.error = error
        for name, stand_in in {
            "current_stream": lambda *_: self.stream,
            "set_stream": lambda stream: setattr(self, "stream", stream),
            "CUDAGraph": lambda: SimpleNamespace(replay=self._replay),
            "graph": self._graph,
            "device": lambda _: own_stream(torch.device("cpu")),
        }.items():
            monkeypatch.setattr(torch.cuda, name, stand_in)

    def _replay(self) -> None:
        self.replays += 1

    @contextmanager
    def _graph(self, graph: object, **options: Any) -> Iterator[None]:
        self.options = options
        before, self.stream = self.stream, "of captures"
        yield
        if self.error is not None:
            raise self.error
        self.stream = before


def test_a_capture_gives_its_result_and_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda(monkeypatch, None)
    captured = capture(lambda: "kernels", error_mode="thread_local")
    assert captured is not None and captured.result == "kernels"
    captured.replay()
    assert cuda.replays == 1 and cuda.options == {"stream": None, "capture_error_mode": "thread_local"}


def test_a_capture_that_fails_warns_and_gives_the_stream_back(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda(monkeypatch, RuntimeError("not permitted when a stream is capturing"))
    with pytest.warns(RuntimeWarning, match="could not be captured.*not permitted"):
        assert capture(lambda: "kernels") is None
    assert cuda.stream == "first"


def test_too_little_memory_is_not_a_capture_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda(monkeypatch, torch.OutOfMemoryError("out of memory"))
    with pytest.raises(torch.OutOfMemoryError):
        capture(lambda: "kernels")
    assert cuda.stream == "first"


def test_a_training_step_that_cannot_be_captured_runs_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCuda(monkeypatch, RuntimeError("no"))
    monkeypatch.setattr(step, "warm_up", lambda run: run())
    weight, calls = nn.Parameter(torch.tensor([2.0])), []

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        loss = (weight * x).sum()
        torch.autograd.backward(loss)
        calls.append(float(x))
        return loss.detach(), x

    recording = step.Recording(run, [weight])
    with pytest.warns(RuntimeWarning, match="could not be captured"):
        first = recording((torch.tensor([3.0]),))
    second = recording((torch.tensor([5.0]),))
    assert float(first[0]) == 6 and float(second[0]) == 10, "each run reads what it was given"
    assert weight.grad is not None and float(weight.grad) == 5, "of the last run alone"
    assert calls == [3, 3, 3, 5], "warming up, capturing, and the two runs"


def test_draws_that_cannot_be_captured_run_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCuda(monkeypatch, RuntimeError("no"))
    x: Any = SimpleNamespace(is_cuda=True)
    x.clone = lambda: x
    ran = []

    def forward(weights: Any, given: Any) -> Any:
        ran.append(given)
        return SimpleNamespace(apart=False, pieces=lambda: {"stream": []})

    repeated = replay.Replay()
    for _ in range(replay.PLAIN):
        repeated(forward, {}, x)
    with pytest.warns(RuntimeWarning, match="could not be captured"):
        assert repeated(forward, {}, x) == {"stream": []}  # type: ignore[comparison-overlap]
    repeated(forward, {}, x)
    assert len(ran) == replay.PLAIN + 3, "the capture is tried once"
