"""A recorded step equals the unrecorded one, or is not recorded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from epochzero.engine.gpu.graph import Captured
from epochzero_papers.thesis.recorded import PLAIN, Capture, Recorded


def faithful(run: Callable[[], Tensor]) -> Captured[Tensor]:
    place = torch.zeros(())

    def play() -> None:
        place.copy_(run())

    return Captured(play, place)


def idle(run: Callable[[], Tensor]) -> Captured[Tensor]:
    return Captured(lambda: None, torch.zeros(()))


def forbidden(run: Callable[[], Tensor]) -> Captured[Tensor]:
    run()  # as far as it got
    raise RuntimeError("operation not permitted when stream is capturing")


def unable(run: Callable[[], Tensor]) -> None:
    run()


@pytest.mark.parametrize(
    ("capture", "plays"), [(None, False), (faithful, True), (idle, False), (forbidden, False), (unable, False)]
)
def test_the_result_is_that_of_the_plain_step(capture: Capture | None, plays: bool) -> None:
    def trained(capture: Capture | None) -> tuple[list[float], Tensor, Recorded]:
        weight = torch.tensor([1.0, 2.0])

        def step(x: Tensor, rate: Tensor) -> Tensor:
            loss = (weight * x).sum()
            weight.sub_(rate * x)
            return loss

        run = Recorded(step, [weight], capture)
        losses = [float(run(torch.tensor([i, -1.0]), torch.tensor(0.1 * i))) for i in range(PLAIN + 4)]
        return losses, weight, run

    expected, found = trained(None), trained(capture)
    assert found[0] == expected[0] and torch.equal(found[1], expected[1])
    assert (found[2].play is not None) == plays
