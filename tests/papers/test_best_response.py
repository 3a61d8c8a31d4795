"""The baselines of NESBS: a posterior learnt during the training, and one network whose paths are dropped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from epochzero.ensemble.posterior import Posterior
from epochzero.registry import spaces
from epochzero.supernet import SinglePath, shared
from epochzero.train.image_data import Images, load_images
from epochzero.train.supernet import SUPERNET, held_out
from epochzero_papers.thesis.best_response import as_json, best_response, from_json, most_probable
from epochzero_papers.thesis.mc_drop_path import drop_path_probabilities
from tests.train.train_images import CLASSES, write

SHORT = replace(SUPERNET, epochs=2, batch_size=16)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Images:
    return held_out(load_images(write(tmp_path_factory.mktemp("data") / "squares.npz", train=80, test=20, side=8)))


@pytest.fixture(scope="module")
def network() -> SinglePath:
    return shared(spaces["nb201"], CLASSES, (3, 8, 8), channels=4, cells=1)


def test_it_learns_while_it_trains_and_resumes(network: SinglePath, images: Images, tmp_path: Path) -> None:
    weights, posterior = best_response(network, images, SHORT, rate=0.1, seed=3)
    assert any(logits.any() for logits in posterior.logits) and len(weights.history) == SHORT.epochs
    folder = tmp_path / "run"
    best_response(network, images, SHORT, rate=0.1, seed=3, folder=folder)
    (folder / "epoch-000002.pt").unlink()
    again, resumed = best_response(network, images, SHORT, rate=0.1, seed=3, folder=folder)
    assert all(torch.equal(one, other) for one, other in zip(posterior.logits, resumed.logits, strict=True))
    assert all(torch.equal(weights.weights[name], weight) for name, weight in again.weights.items())


def test_checkpoints_come_at_intervals_and_at_the_end(network: SinglePath, images: Images, tmp_path: Path) -> None:
    best_response(network, images, replace(SHORT, epochs=3), folder=tmp_path, keep_every=2)
    assert sorted(file.name for file in tmp_path.glob("epoch-*.pt")) == ["epoch-000002.pt", "epoch-000003.pt"]


def test_a_posterior_is_kept_as_json() -> None:
    posterior = Posterior((torch.tensor([0.7, 0.2, 0.1]).log(), torch.zeros(2)), 0.5, (1.0,))
    assert most_probable(posterior) == (0, 0)
    again = from_json(as_json(posterior))
    assert [p.tolist() for p in again.probabilities] == [p.tolist() for p in posterior.probabilities]
    assert again.history == posterior.history


def test_drop_path_drops_at_random_and_leaves_the_network_alone() -> None:
    arch = spaces["nb201"].parse(
        "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|"
    )
    module = spaces["nb201"].plan(arch, 4, (3, 16, 16)).module()
    plan, x = module.plan, torch.rand(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    often = drop_path_probabilities(module, x, often=0.5, passes=4, seed=3)
    assert often.shape == (4, 5, 4) and not torch.equal(often[0], often[1])
    assert torch.equal(often, drop_path_probabilities(module, x, often=0.5, passes=4, seed=3))
    assert module.plan is plan and module.training
    never = drop_path_probabilities(module, x, often=0.0, passes=2)
    torch.testing.assert_close(never[0], module.eval()(x).softmax(1).detach())
