"""Sums over the units of many networks' maps, against loops; of tensors, and of maps where they lie."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from epochzero.engine.gpu.arena import Source
from epochzero.engine.gpu.routine_run import ScatteredMaps
from epochzero.engine.population.reductions import agreements, mark, products, variances


def spread(seed: int = 0) -> tuple[ScatteredMaps, Tensor]:
    """Three maps among five, and the same as [B, M, C, H, W]."""
    arena = torch.randn(5, 4, 3, 2, 6, generator=torch.Generator().manual_seed(seed))
    slots = torch.tensor([4, 0, 2], dtype=torch.int32)
    return ScatteredMaps(Source(arena), slots), arena[slots].permute(1, 0, 4, 2, 3).contiguous()


@pytest.mark.parametrize("apart", [False, True])
def test_agreements_are_counted(apart: bool) -> None:
    lying, maps = spread()
    found = agreements(lying if apart else maps)  # [M, B, B]
    on = (maps > 0).flatten(2)
    for m in range(3):
        for i in range(4):
            for j in range(4):
                assert found[m, i, j] == sum(bool(a == b) for a, b in zip(on[i, m], on[j, m], strict=True))


@pytest.mark.parametrize("apart", [False, True])
def test_patterns_are_marked_for_their_owners(apart: bool) -> None:
    lying, maps = spread()
    shown = torch.zeros(2, 16, dtype=torch.uint8)
    owners = torch.tensor([1, 0, 1], dtype=torch.int32)
    mark(shown, owners, lying if apart else maps)
    expected: list[set[int]] = [set(), set()]
    for m, owner in enumerate(owners.tolist()):
        for unit in (maps[:, m] > 0).flatten(1).T:
            expected[owner].add(sum(2**i for i, on in enumerate(unit.tolist()) if on))
    assert [set(row.nonzero().flatten().tolist()) for row in shown] == expected


def test_variances_and_products() -> None:
    lying, maps = spread()
    torch.testing.assert_close(variances(lying), maps.var((0, 3, 4)))
    torch.testing.assert_close(variances(maps), maps.var((0, 3, 4)))
    other, others = spread(1)
    torch.testing.assert_close(products(lying, other), (maps * others).sum((3, 4)))


def test_what_was_rectified_is_seen_so() -> None:
    lying, maps = spread()
    torch.testing.assert_close(lying._replace(relu=True).dense, maps.relu())
