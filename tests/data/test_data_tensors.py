"""Tensors as data: how they are cut, and what is said where they are cut too coarsely."""

from __future__ import annotations

import pytest
import torch

import epochzero as ez
from epochzero.data import from_tensors
from epochzero.errors import DataError, UserError
from tests.engine.modules.any_nets import CLASSES, residual
from tests.engine.modules.module_nets import seeded

X = torch.arange(20.0).view(10, 2)
Y = torch.arange(10) % 3


@pytest.mark.parametrize(
    ("size", "parts", "cut"),
    [
        (None, None, (10, 1)),
        (None, 3, (3, 3)),
        (4, None, (4, 2)),
        (4, 1, (4, 1)),
        (10, None, (10, 1)),
        (1, None, (1, 10)),
    ],
)
def test_how_tensors_are_cut(size: int | None, parts: int | None, cut: tuple[int, int]) -> None:
    batch = from_tensors(X, Y, size=size, parts=parts)
    assert (batch.size, batch.parts) == cut
    samples = [batch.part(i) for i in range(batch.parts)]
    assert torch.equal(torch.cat([x for x, _ in samples]), X[: cut[0] * cut[1]])
    assert torch.equal(torch.cat([y for _, y in samples if y is not None]), Y[: cut[0] * cut[1]])


def test_as_many_parts_as_there_are_samples_for_are_those_parts() -> None:
    assert from_tensors(X, Y, size=3).id == from_tensors(X, Y, size=3, parts=3).id


def test_cuts_that_cannot_be_made() -> None:
    with pytest.raises(DataError, match=r"shape \[10, 2\] cannot be cut into a batch of 11 samples\."):
        from_tensors(X, size=11)
    with pytest.raises(DataError, match=r"shape \[10, 2\] cannot be cut into 3 batches of 4 samples\."):
        from_tensors(X, size=4, parts=3)
    with pytest.raises(DataError, match=r"cannot be cut into 11 batches of \[samples, \.\.\.\]\."):
        from_tensors(X, parts=11)
    with pytest.raises(UserError, match="The batch size is 0; it has to be at least 1"):
        from_tensors(X, size=0)
    with pytest.raises(UserError, match="The number of batches is 0; it has to be at least 1"):
        from_tensors(X, parts=0)


@pytest.mark.parametrize(
    ("samples", "index", "advice"),
    [
        (256, 1, "cut the tensors with data.from_tensors(x, y, size=64, parts=4)"),
        (1000, 3, "cut the tensors with data.from_tensors(x, y, size=64, parts=4)"),
        (100, 1, "cut the tensors with data.from_tensors(x, y, size=25, parts=4)"),
        (100, 9, "cut the tensors with data.from_tensors(x, y, size=10, parts=10)"),
        (3, 1, "give more data or a smaller batch size"),
    ],
)
def test_a_part_that_is_not_there(samples: int, index: int, advice: str) -> None:
    with pytest.raises(DataError) as error:
        from_tensors(torch.zeros(samples, 2)).part(index)
    said = f"This batch has 1 part of {samples} samples, and part {index + 1} is needed: {advice}."
    assert str(error.value) == said


def test_the_advice_helps() -> None:
    chance = torch.Generator().manual_seed(0)
    x, y = torch.randn(32, 3, 8, 8, generator=chance), torch.randint(CLASSES, (32,), generator=chance)
    refused = ez.score(seeded(residual), "zico,sigeo", data=(x, y))
    assert {score.status for score in refused.values()} == {"failed"}
    assert all("data.from_tensors(x, y, size=8, parts=4)" in score.why for score in refused.values())
    cut = from_tensors(x, y, size=8, parts=4)
    assert all(score.ok for score in ez.score(seeded(residual), "zico,sigeo", data=cut).values())
