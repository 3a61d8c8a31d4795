"""Training shared weights: as a plain loop does it, resumed to the last bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from epochzero.errors import UserError
from epochzero.plan import execute, generator
from epochzero.registry import spaces
from epochzero.supernet import SinglePath, shared
from epochzero.train.image_data import Images, load_images
from epochzero.train.supernet import SUPERNET, held_out, train_supernet
from tests.train.train_images import CLASSES, write

SHORT = replace(SUPERNET, epochs=2, batch_size=16)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Images:
    return load_images(write(tmp_path_factory.mktemp("data") / "squares.npz", train=80, test=20, side=8))


@pytest.fixture(scope="module")
def network() -> SinglePath:
    return shared(spaces["nb201"], CLASSES, (3, 8, 8), channels=8, cells=1)


def test_halves_share_no_image_and_leave_none_out(whole: Images) -> None:
    halves = held_out(whole, share=0.7, seed=1)
    assert len(halves.y) == 56 and len(halves.test_y) == 24
    both = torch.cat([halves.x, halves.test_x]).flatten(1).tolist()
    assert sorted(both) == sorted(whole.x.flatten(1).tolist())
    assert not torch.equal(held_out(whole, seed=2).y, halves.y)
    with pytest.raises(UserError, match="leaves too few on one side"):
        held_out(whole, share=1)


def test_is_a_plain_loop_over_uniform_paths(network: SinglePath, whole: Images) -> None:
    recipe = replace(SHORT, epochs=1, pad=0, flip=False, clip=0)
    trained = train_supernet(network, whole, recipe, seed=4)
    weights = network.draw(4)
    sgd = torch.optim.SGD([w for w in weights.values() if w.requires_grad], momentum=0.9, weight_decay=3e-4)
    rng, steps = generator(4, "supernet", 0), 80 // 16
    order = torch.randperm(80, generator=rng)
    for step in range(steps):
        sgd.param_groups[0]["lr"] = recipe.rate(step, steps)
        plan = network.path(network.uniform(rng), "batch").with_statistics("tracked")
        chosen = order[step * 16 : (step + 1) * 16]
        sgd.zero_grad()
        loss = F.cross_entropy(execute(plan, weights, (whole.standardised(whole.x[chosen]),)), whole.y[chosen])
        torch.autograd.backward(loss)
        sgd.step()
    assert all(torch.equal(trained.weights[name], weight) for name, weight in weights.items())


def test_learns(network: SinglePath, whole: Images) -> None:
    history = train_supernet(network, whole, replace(SHORT, epochs=8, pad=0, flip=False), seed=0).history
    assert history[-1]["loss"] < history[0]["loss"] - 0.1
    assert [record["epoch"] for record in history] == list(range(1, 9))


def test_darts_with_partial_channels_learns_too(whole: Images) -> None:
    network = shared(spaces["darts"], CLASSES, (3, 8, 8), channels=4, cells=3, partial=2)
    before = network.draw(0)
    trained = train_supernet(network, whole, replace(SHORT, epochs=1, batch_size=80), seed=0)
    path = network.path(network.uniform(_after_order(0, 80)), "batch").weights
    moved = {name for name, weight in trained.weights.items() if not torch.equal(weight, before[name])}
    assert moved == set(path), "the one path that was drawn, running statistics included"


def _after_order(seed: int, images: int) -> torch.Generator:
    """The generator of the first epoch, after the order of the images was drawn."""
    rng = generator(seed, "supernet", 0)
    torch.randperm(images, generator=rng)
    return rng


def test_resumed_ends_with_the_same_bits(network: SinglePath, whole: Images, tmp_path: Path) -> None:
    straight = train_supernet(network, whole, SHORT, seed=7)
    train_supernet(network, whole, SHORT, seed=7, folder=tmp_path)
    (tmp_path / "epoch-000002.pt").unlink()
    resumed = train_supernet(network, whole, SHORT, seed=7, folder=tmp_path)
    assert all(torch.equal(straight.weights[name], weight) for name, weight in resumed.weights.items())
    losses = [[record["loss"] for record in one.history] for one in (straight, resumed)]
    assert losses[0] == losses[1]
    with pytest.raises(UserError, match="holds another training"):
        train_supernet(network, whole, SHORT, seed=8, folder=tmp_path)


def test_a_loss_that_is_no_number_says_so(network: SinglePath, whole: Images) -> None:
    with pytest.raises(UserError, match=r"NaN or infinite in epoch [12]: lower the learning_rate"):
        train_supernet(network, whole, replace(SHORT, learning_rate=1e3, clip=0, weight_decay=1))
