"""The two ends of a spectrum by squaring, against all of it from the library."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from epochzero.engine import spectrum
from epochzero.engine.gpu import arena
from epochzero.engine.spectrum import by_squaring, extreme_eigenvalues


def grams(rank: int, spread: float = 1.0) -> Tensor:
    """Ten Gram matrices of 40 vectors in `rank` dimensions, whose scales differ by powers of ten."""
    x = torch.randn(10, 40, rank, dtype=torch.float64, generator=torch.Generator().manual_seed(rank))
    x = x * torch.logspace(0, -spread, 40, dtype=torch.float64)[:, None]
    return x @ x.mT


@pytest.mark.parametrize("norms", [spectrum.nuclear_norms, spectrum.by_orthogonal_factor])
@pytest.mark.parametrize(("rank", "spread"), [(24, 0.0), (24, 3.0), (24, 12.0), (5, 0.0), (0, 0.0)])
def test_nuclear_norms_are_those_of_singular_values(
    norms: Callable[[Tensor], Tensor], rank: int, spread: float
) -> None:
    drawn = torch.Generator().manual_seed(rank)
    left, right = (torch.randn(3, size, 24, dtype=torch.float64, generator=drawn) for size in (70, 24))
    scales = torch.where(torch.arange(24) < rank, torch.logspace(2, 2 - spread, 24, dtype=torch.float64), 0)
    matrices = torch.linalg.qr(left)[0] * scales @ torch.linalg.qr(right)[0].mT  # [3, 70, 24]
    expected = torch.linalg.matrix_norm(matrices, "nuc")
    assert torch.allclose(expected, scales.sum().expand(3))
    bound = 24 * (24 * torch.finfo(torch.float64).eps) ** 0.5
    assert torch.allclose(norms(matrices), expected, rtol=bound / 10, atol=0)
    if spread < 12:
        assert torch.allclose(norms(matrices), expected, rtol=1e-9, atol=0)
    if norms is spectrum.nuclear_norms:
        assert torch.equal(norms(matrices.mT.contiguous()), norms(matrices))
        assert torch.allclose(norms(matrices.float()), expected, rtol=1e-4)


@pytest.mark.parametrize(("rank", "spread"), [(40, 0.0), (200, 0.0), (60, 3.0), (60, 7.0), (12, 0.0)])
def test_both_ends_are_those_of_the_library_up_to_rounding(rank: int, spread: float) -> None:
    given = grams(rank, spread)
    expected = torch.linalg.eigvalsh(given)
    low, high = by_squaring(given)
    assert torch.allclose(high, expected[:, -1], rtol=1e-13)
    assert ((low - expected[:, 0]).abs() <= 1e-14 * expected[:, -1]).all()
    batched = torch.func.vmap(by_squaring)(given)
    assert torch.allclose(batched[0], low, rtol=1e-6, atol=1e-14) and torch.allclose(batched[1], high)


def test_equal_eigenvalues_and_zeros() -> None:
    low, high = by_squaring(torch.stack([torch.zeros(5, 5), 3 * torch.eye(5)]).double())
    assert low.tolist() == pytest.approx([0, 3]) and high.tolist() == pytest.approx([0, 3])


def test_on_the_cpu_the_library_does_it() -> None:
    given = grams(60)
    low, high = extreme_eigenvalues(given[0])
    assert torch.equal(torch.stack([low, high]), torch.linalg.eigvalsh(given[0])[[0, -1]])


def test_where_kernels_find_all_eigenvalues_they_give_the_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """One matrix, many, and many by `vmap`: the kernels always get them side by side."""
    seen: list[tuple[int, ...]] = []

    def eigenvalues(matrices: Tensor, ends: bool) -> Tensor:
        seen.append((*matrices.shape, ends))
        found: Tensor = torch.linalg.eigvalsh(matrices)
        return found[:, [0, -1]] if ends else found

    monkeypatch.setattr(arena, "runs_here", lambda _: True)
    monkeypatch.setattr(arena, "kernels", lambda: SimpleNamespace(eigenvalues=eigenvalues))
    given = grams(60)
    expected = torch.linalg.eigvalsh(given)[:, [0, -1]].T
    assert torch.equal(torch.stack(extreme_eigenvalues(given[3])), expected[:, 3])
    assert torch.equal(torch.stack(extreme_eigenvalues(given)), expected)
    assert torch.equal(torch.stack(torch.func.vmap(extreme_eigenvalues)(given)), expected)
    assert torch.equal(spectrum.eigenvalues(given), torch.linalg.eigvalsh(given))
    assert seen == [(1, 40, 40, True), (10, 40, 40, True), (10, 40, 40, True), (10, 40, 40, False)]
