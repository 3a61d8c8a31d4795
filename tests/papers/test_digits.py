"""The study of perceptrons on digits: batched training against one module at a time, and what is refused."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau, spearmanr
from torch.nn.functional import cross_entropy

from epochzero.errors import DataError, UserError
from epochzero.registry import experiments, spaces
from epochzero.types import Origin
from epochzero_papers.harness.base import Result
from epochzero_papers.sigeo.digits import MEAN, STATISTICS, STD, Digits, Perceptrons, follow
from epochzero_papers.sigeo.figure2 import SigeoFigure2, Study
from tests.command import epochzero, refusal
from tests.data.data_files import save

STEPS, LEVELS = 9, (0, 3)
TINY = Study(networks=4, batch_size=6, repeats=2, steps=STEPS, levels=LEVELS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    pixels = np.random.default_rng(1).integers(0, 256, (50, 4, 4), dtype=np.uint8)
    save(folder / "mnist.npz", x=pixels, y=np.arange(50) % 5)
    return folder


@pytest.fixture(scope="module")
def digits(folder: Path) -> Digits:
    return Digits.read(folder / "mnist.npz", batch_size=6, seed=0)


def test_one_in_five_of_each_class_is_held_out(digits: Digits) -> None:
    assert digits.x.shape == (40, 16) and digits.test_x.shape == (10, 16)
    assert digits.y.bincount().tolist() == [8] * 5 and digits.test_y.bincount().tolist() == [2] * 5
    pixels = torch.cat([digits.x, digits.test_x]) * STD + MEAN
    assert float(pixels.min()) >= -1e-6 and float(pixels.max()) <= 1 + 1e-6
    assert len(torch.cat([digits.x, digits.test_x]).unique(dim=0)) == 50  # type: ignore[no-untyped-call]


def test_batches_go_through_all_digits_and_begin_again_in_another_order(digits: Digits) -> None:
    taken = list(itertools.islice(digits.batches(), 14))
    first, second = (torch.cat([x for x, _ in some]) for some in (taken[:6], taken[6:12]))
    assert len(first.unique(dim=0)) == 36, "6 whole batches of 40, none twice"  # type: ignore[no-untyped-call]
    assert not torch.equal(first, second)
    again = list(itertools.islice(digits.batches(), 14))
    assert all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in zip(taken, again, strict=True))


def slow(hidden: int, seed: int, rate: float, digits: Digits) -> dict[str, float]:
    """One module, torch's own SGD, gradients by hand."""
    module = spaces["mlp"].plan(hidden, 5, (16,)).module(Origin(seed=seed))
    weights = list(module.parameters())
    sgd = torch.optim.SGD(weights, lr=rate)
    batches = list(itertools.islice(digits.batches(), STEPS + 4))
    found = {}
    for step in range(STEPS):
        if step in LEVELS:
            rows = []
            for x, y in batches[step : step + 4]:
                loss = cross_entropy(module(x), y)
                g = torch.autograd.grad(loss, weights)
                along = float(sum((w.detach() * one).sum() for w, one in zip(weights, g, strict=True)))
                each = []
                for i in range(len(x)):
                    alone = torch.autograd.grad(cross_entropy(module(x[i : i + 1]), y[i : i + 1]), weights)
                    each.append(
                        float(sum((w.detach() * one).sum() for w, one in zip(weights, alone, strict=True))) ** 2
                    )
                total = float(sum(one.abs().sum() for one in g))
                count = sum(w.numel() for w in weights)
                rows.append([float(loss.detach()), along**2, float(np.mean(each)), total / count, total])
            for name, value in zip(STATISTICS, np.mean(rows, axis=0), strict=True):
                found[f"{name} after {step}"] = float(value)
        sgd.zero_grad()
        x, y = batches[step]
        cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
        sgd.step()
    with torch.no_grad():
        found["final training loss"] = float(cross_entropy(module(digits.x), digits.y))
        found["final test loss"] = float(cross_entropy(module(digits.test_x), digits.test_y))
    return found


@pytest.fixture(scope="module")
def result(folder: Path) -> Result:
    return SigeoFigure2().run(TINY, seed=0, folder=folder)


def test_everything_measured_is_what_one_module_at_a_time_gives(result: Result, digits: Digits) -> None:
    assert list(result.samples) == ["lr .01", "lr .02"]
    for name, rate in (("lr .01", 0.01), ("lr .02", 0.02)):
        sample = result.samples[name]
        assert sample.archs[:4] == ["2, seed 0", "18, seed 0", "32, seed 0", "48, seed 0"]
        for place, arch in enumerate(sample.archs):
            hidden, _, seed = arch.partition(", seed ")
            for column, value in slow(int(hidden), int(seed), rate, digits).items():
                assert sample.values[column][place] == pytest.approx(value, rel=2e-4, abs=1e-7), (name, arch, column)


def test_rows_are_means_over_draws_of_correlations_over_widths(result: Result) -> None:
    expected: dict[str, Any] = {"spearman": spearmanr, "kendall": kendalltau}
    assert len(result.rows) == 2 * len(LEVELS) * len(STATISTICS) * 2 * 2
    for row in result.rows:
        values = result.samples[row.sample].values
        x, y = (np.array(values[name], float).reshape(TINY.repeats, TINY.networks) for name in (row.x, row.y))
        each = [expected[row.statistic](a, b).statistic for a, b in zip(x, y, strict=True)]
        assert row.found is not None and row.found.value == pytest.approx(np.mean(each), abs=1e-9)
        assert row.found.n == TINY.networks and row.paper is None


def test_a_network_that_is_alone_trains_as_among_others(digits: Digits) -> None:
    together = follow(Perceptrons(4, [0, 1, 0], [0.01, 0.01, 0.02], digits), digits, [0, 2], 5)
    alone = follow(Perceptrons(4, [0], [0.02], digits), digits, [0, 2], 5)
    assert torch.allclose(together.test[2:], alone.test) and torch.allclose(together.train[2:], alone.train)
    assert torch.allclose(together.after[2][:, 2:], alone.after[2], rtol=1e-4)


def test_the_figure_with_more_levels_has_test_losses_alone(folder: Path) -> None:
    figure = experiments["sigeo-figure7"]
    assert figure.full.levels == (0, 48, 192, 281, 375, 469)
    rows = figure.run(TINY, folder=folder).rows
    assert {row.y for row in rows} == {"final test loss"}


def test_the_command(folder: Path) -> None:
    ran = epochzero("reproduce", "sigeo-figure2", "--quick", "--networks", 3, "--data-folder", folder, "--json")
    assert ran.code == 2 and "too few to train with batches of 128" in ran.err


def test_what_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There are 24 perceptrons to choose from, not 25"):
        SigeoFigure2().run(Study(networks=25), folder=folder)
    with pytest.raises(UserError, match="A warm-up of 192 steps is longer than the 9 of training"):
        SigeoFigure2().run(Study(networks=3, steps=9), folder=folder)
    assert "put mnist.npz or mnist5k.npz (digits of MNIST: arrays x, y) into the folder" in refusal(
        "reproduce", "sigeo-figure2", "--data-folder", tmp_path
    )
    unlabelled = save(tmp_path / "plain.npz", x=np.zeros((5, 4, 4), np.uint8))
    with pytest.raises(DataError, match="has no labels"):
        SigeoFigure2().run(TINY, data=unlabelled)
