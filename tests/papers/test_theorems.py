"""Theorems 4.3, 4.4 and 7.4 of the thesis on random linear cells, and where 4.3 and 4.4 end."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from epochzero.plan import generator
from epochzero_papers.thesis.theorems import (
    Case,
    against_theorem_4_3,
    against_theorem_4_4,
    broken,
    conditions,
    deep_network,
    gradient_variance,
    linear,
    narrowest,
    norms,
    orthonormal,
    quadratic,
    random_case,
    smoothness,
    tangent_kernel,
    wide_network,
    widest,
)

cases = st.builds(
    random_case,
    st.integers(0, 10**6),
    nodes=st.integers(1, 4),
    size=st.integers(1, 4),
    samples=st.integers(2, 8),
    scale=st.sampled_from([0.3, 1.0, 3.0]),
)


@settings(max_examples=20, deadline=None)
@given(cases)
def test_both_theorems_hold_for_objectives_linear_in_the_output(case: Case) -> None:
    smooth, noisy = against_theorem_4_3(case, linear), against_theorem_4_4(case, linear)
    assert all(verdict.holds for verdict in (*smooth, *noisy))
    assert all(verdict.found == verdict.allowed == 0 for verdict in smooth), "a linear objective does not bend"
    assert noisy[0].found > 0


def test_the_variance_of_a_chain_of_one_node_is_that_of_the_wide_cell() -> None:
    case = random_case(0, nodes=1)
    (verdict,) = against_theorem_4_4(case, linear)
    assert verdict.found == pytest.approx(verdict.allowed)


def test_gradients_of_the_linear_cells_by_hand() -> None:
    """d(c . W x)/dW = c x^T; in the chain the first block sees c_1 x^T + W_2^T c_2 x^T."""
    weights, x, c = random_case(3, nodes=2, size=3, samples=6)
    wide = c[:, 1, :, None] * x[:, None]  # [B, d, d]
    deep = (c[:, 0] + c[:, 1] @ weights[1])[:, :, None] * x[:, None]
    for nodes, block, expected in ((widest, 1, wide), (narrowest, 0, deep)):
        spread = torch.linalg.matrix_norm(expected - expected.mean(0), 2).square().mean()
        assert gradient_variance(nodes, linear(c), weights, x, block) == pytest.approx(float(spread))


def test_smoothness_of_a_quadratic_objective_is_the_closed_form() -> None:
    weights, x, targets = random_case(1, nodes=3, size=3, samples=1)
    one, two, three = weights
    for block, (before, after) in enumerate(
        [(x[0], [two, three @ two]), (one @ x[0], [three]), (two @ one @ x[0], [])]
    ):
        carried = torch.eye(3, dtype=x.dtype) + sum((a.mT @ a for a in after), torch.zeros(3, 3, dtype=x.dtype))
        expected = float(torch.linalg.matrix_norm(carried, 2) * before.square().sum())
        assert smoothness(narrowest, quadratic(targets), weights, x, block) == pytest.approx(expected)
        assert smoothness(widest, quadratic(targets), weights, x, block) == pytest.approx(float(x.square().sum()))


def test_a_quadratic_objective_breaks_theorem_4_3() -> None:
    """Its proof equates the gradients of the two cells' objectives, which a quadratic one does not have alike."""
    verdicts = [against_theorem_4_3(random_case(seed, size=4, scale=1.0), quadratic) for seed in range(10)]
    broken = [sum(not blocks[i].holds for blocks in verdicts) for i in range(4)]
    assert broken[0] == 10, "the first block always bends more: its output goes on to all later nodes"
    assert sum(broken) >= 25, broken
    small = [against_theorem_4_3(random_case(seed, size=4, scale=0.05), quadratic)[3] for seed in range(10)]
    assert all(verdict.holds for verdict in small), "the last block of weights below 1 is squared, not summed"


def test_a_quadratic_objective_may_break_theorem_4_4() -> None:
    verdicts = [
        verdict
        for scale in (0.3, 1.0, 3.0)
        for seed in range(10)
        for verdict in against_theorem_4_4(random_case(seed, size=4, samples=8, scale=scale), quadratic)
    ]
    assert any(not verdict.holds for verdict in verdicts) and any(verdict.holds for verdict in verdicts)


def test_the_norm_is_needed_where_the_thesis_says_eigenvalue() -> None:
    shear = torch.tensor([[0.0, 5.0], [0.0, 0.0]], dtype=torch.float64)
    assert norms([shear]) == [5.0]
    assert float(torch.linalg.eigvals(shear).abs().max()) == 0


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(2, 6))
def test_the_kernel_of_a_wide_linear_network_is_a_multiple_of_the_identity(seed: int, layers: int, size: int) -> None:
    x = orthonormal(2, size, seed)
    weights = torch.randn(layers, size, size, generator=generator(seed, "weights"), dtype=torch.float64)
    expected = layers * size * torch.eye(2, dtype=torch.float64)
    torch.testing.assert_close(tangent_kernel(wide_network, weights, x), expected)


def test_that_of_a_deep_one_is_so_in_expectation_alone() -> None:
    layers, size, draws = 3, 3, 4000
    x = orthonormal(2, size, 0)
    drawn = torch.randn(draws, layers, size, size, generator=generator(0, "weights"), dtype=torch.float64)
    kernels = torch.func.vmap(lambda weights: tangent_kernel(deep_network, weights, x))(drawn)  # [draws, m, m]
    expected = layers * size**layers * torch.eye(2, dtype=torch.float64)
    error = kernels.std(0) / math.sqrt(draws)
    assert ((kernels.mean(0) - expected).abs() < 4 * error).all(), (kernels.mean(0), error)
    assert (error < 0.06 * layers * size**layers).all()
    eigenvalues = torch.linalg.eigvalsh(kernels)
    assert (eigenvalues[:, 1] / eigenvalues[:, 0] > 1.01).double().mean() > 0.95


def test_the_kernel_of_a_deep_one_is_as_the_proof_writes_it() -> None:
    """Eq. D.47: sum_i ||1^T W_L ... W_{i+1}||^2 <W_{i-1} ... W_1 x, W_{i-1} ... W_1 x'>."""
    size, layers, x = 4, 3, orthonormal(3, 4, 1)
    weights = torch.randn(layers, size, size, generator=generator(1, "weights"), dtype=torch.float64)
    total = torch.zeros(3, 3, dtype=torch.float64)
    for i in range(layers):
        before, after = x, torch.ones(size, dtype=torch.float64)
        for weight in weights[:i]:
            before = before @ weight.mT
        for weight in reversed(weights[i + 1 :]):
            after = after @ weight
        total += after.square().sum() * before @ before.mT
    torch.testing.assert_close(tangent_kernel(deep_network, weights, x), total)


def test_what_a_series_of_cells_breaks() -> None:
    assert broken(against_theorem_4_4, linear, range(5), nodes=3, size=3, scale=1.0) == [0, 0, 0]
    found = broken(against_theorem_4_3, quadratic, range(5), nodes=3, size=3, scale=1.0)
    verdicts = [against_theorem_4_3(random_case(seed, 3, 3), quadratic) for seed in range(5)]
    assert found == [sum(not blocks[i].holds for blocks in verdicts) for i in range(3)] and found[0] == 5
    wide, deep = conditions(range(5), layers=3, size=4)
    assert wide == pytest.approx([1.0] * 5) and min(deep) > 1.001
