"""Attacks: against slow hand-written ones and the toolbox, and the protocol of one attacked and all defending."""

from __future__ import annotations

import math
import warnings
from random import Random

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from epochzero.ensemble import attacks_art
from epochzero.ensemble.attacks import EPSILON, OWN, attack_of, fgsm, pgd, robustness
from epochzero.ensemble.model import Ensemble, Pixels
from epochzero.errors import UnknownNameError, UserError
from epochzero.registry import spaces
from epochzero.types import Origin

SPACE = spaces["nb201"]
SHAPE = (3, 8, 8)
CLASSES = 4


class Small(nn.Module):
    """A smooth network with gradients that are not zero."""

    def __init__(self) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(5)
        self.first = nn.Parameter(torch.randn(192, 10, generator=rng) / 8)
        self.second = nn.Parameter(torch.randn(10, CLASSES, generator=rng))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x.flatten(1) @ self.first) @ self.second


@pytest.fixture(scope="module")
def batch() -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(6, *SHAPE, generator=rng)
    x[0, :, :2] = 0.0
    x[1, :, 3:] = 1.0
    return x, torch.randint(CLASSES, (6,), generator=rng)


def chance() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def slow_gradient(network: nn.Module, image: Tensor, label: int) -> Tensor:
    """Of one image's loss, -log of the softmax written out."""
    image = image.clone().requires_grad_()
    logits = network(image[None])[0]
    loss = torch.log(torch.exp(logits).sum()) - logits[label]
    torch.autograd.backward(loss)
    assert image.grad is not None
    return image.grad


def test_fgsm_by_hand() -> None:
    """One pixel, two classes, logits (x, -x): the loss of class 0 falls with x, so the attack lowers x."""

    class Line(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat((x.flatten(1), -x.flatten(1)), 1)

    x = torch.tensor([[[[0.5]]], [[[0.5]]], [[[0.004]]]])
    found = fgsm(Line(), x, torch.tensor([0, 1, 0]), chance())
    assert found.flatten().tolist() == pytest.approx([0.49, 0.51, 0.0])


def test_fgsm_and_pgd_are_those_of_slow_loops(batch: tuple[Tensor, Tensor]) -> None:
    network, (x, y) = Small(), batch
    for i in range(len(x)):
        expected = (x[i] + EPSILON * torch.sign(slow_gradient(network, x[i], int(y[i])))).clamp(0, 1)
        torch.testing.assert_close(fgsm(network, x[i : i + 1], y[i : i + 1], chance())[0], expected)
    found = pgd(network, x, y, chance(), epsilon=0.05, step=0.02, steps=5, random_start=False)
    for i in range(len(x)):
        image = x[i]
        for _ in range(5):
            image = image + 0.02 * torch.sign(slow_gradient(network, image, int(y[i])))
            image = torch.minimum(torch.maximum(image, x[i] - 0.05), x[i] + 0.05).clamp(0, 1)
        torch.testing.assert_close(found[i], image, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", sorted(OWN))
def test_attacks_stay_in_the_box_and_raise_the_loss(name: str, batch: tuple[Tensor, Tensor]) -> None:
    network, (x, y) = Small(), batch
    found = OWN[name](network, x, y, chance())
    assert float((found - x).abs().max()) <= EPSILON + 1e-6
    assert float(found.min()) >= 0 and float(found.max()) <= 1
    before, after = (nn.functional.cross_entropy(network(z), y) for z in (x, found))
    assert after > before
    assert torch.equal(found, OWN[name](network, x, y, chance()))
    assert all(parameter.grad is None for parameter in network.parameters())


def test_the_toolbox_agrees(batch: tuple[Tensor, Tensor]) -> None:
    from art.attacks.evasion import FastGradientMethod, ProjectedGradientDescentPyTorch

    network, (x, y) = Small().eval(), batch
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier = attacks_art.classifier_of(network, x)
        theirs = FastGradientMethod(classifier, eps=0.03).generate(x.numpy(), y.numpy())
        torch.testing.assert_close(fgsm(network, x, y, chance(), epsilon=0.03), torch.from_numpy(theirs))
        attack = ProjectedGradientDescentPyTorch(classifier, eps=0.03, eps_step=0.01, max_iter=7, verbose=False)
        theirs = attack.generate(x.numpy(), y.numpy())
    ours = pgd(network, x, y, chance(), epsilon=0.03, step=0.01, steps=7, random_start=False)
    torch.testing.assert_close(ours, torch.from_numpy(theirs), rtol=0, atol=1e-6)


def test_carlini_wagner_finds_near_images_that_are_mistaken(batch: tuple[Tensor, Tensor]) -> None:
    network, (x, _) = Small().eval(), batch
    y = network(x).argmax(1)  # right before the attack
    np.random.seed(7)
    found = attack_of("cw")(network, x, y, chance())
    drawn = np.random.random()
    np.random.seed(7)
    assert drawn == np.random.random()  # as if the toolbox had drawn nothing
    mistaken = network(found).argmax(1) != y
    assert mistaken.float().mean() >= 0.5
    assert math.sqrt(float((found - x)[mistaken].square().flatten(1).sum(1).max())) < 3
    assert float(found.min()) >= 0 and float(found.max()) <= 1


def test_autoattack_finds_images_in_its_box_that_are_mistaken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Class 0 where the mean is more than a half: .52 can be pushed below it within 8/255, .6 cannot."""

    class Mean(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            z = 40 * (x.mean((1, 2, 3)) - 0.5)[:, None]
            return torch.cat((z, -z, torch.full_like(z, -9)), 1)

    monkeypatch.setattr(attacks_art, "ITERATIONS", 5)
    monkeypatch.setattr(attacks_art, "RESTARTS", 1)
    monkeypatch.setattr(attacks_art, "QUERIES", 20)
    x = torch.tensor([0.52, 0.6])[:, None, None, None].expand(2, 3, 16, 16).clone()
    found = attack_of("autoattack")(Mean(), x, torch.tensor([0, 0]), chance())
    assert Mean()(found).argmax(1).tolist() == [1, 0]
    assert float((found - x).abs().max()) <= 8 / 255 + 1e-6
    assert torch.equal(found[1], x[1])


# The protocol


@pytest.fixture(scope="module")
def ensemble() -> Ensemble:
    rng = Random(3)
    archs = [SPACE.sample(rng) for _ in range(2)]
    modules = [SPACE.plan(arch, CLASSES, SHAPE).module(Origin(seed=i)) for i, arch in enumerate(archs)]
    return Ensemble(SPACE, archs, modules, Pixels((0.5,) * 3, (0.25,) * 3)).eval()


@pytest.mark.usefixtures("shallow_nb201")
def test_one_member_is_attacked_and_all_defend(ensemble: Ensemble, batch: tuple[Tensor, Tensor]) -> None:
    x, y = batch
    told: list[tuple[int, int | None]] = []
    found = robustness(ensemble, x, y, "fgsm", size=4, progress=lambda done, total, note: told.append((done, total)))
    for place, member in enumerate(ensemble.members):

        class Attacked(nn.Module):
            def forward(self, pixels: Tensor, member: nn.Module = member) -> Tensor:
                logits: Tensor = member((pixels - 0.5) / 0.25)
                return logits

        changed = torch.cat([fgsm(Attacked(), x[i : i + 1], y[i : i + 1], chance()) for i in range(len(x))])
        with torch.no_grad():
            own = (Attacked()(changed).argmax(1) == y).double().mean()
            whole = (ensemble.of_pixels(changed).argmax(1) == y).double().mean()
        assert found.attacked[place] == pytest.approx(float(own))
        assert found.defended[place] == pytest.approx(float(whole))
    assert told == [(0, 12), (4, 12), (6, 12), (10, 12)]
    assert all(parameter.requires_grad for parameter in ensemble.parameters())
    report = found.as_json()
    assert report["attack_accuracy"] == pytest.approx(sum(found.attacked) / 2) and report["images"] == 6


def test_what_cannot_be_attacked(ensemble: Ensemble, batch: tuple[Tensor, Tensor]) -> None:
    x, y = batch
    with pytest.raises(UserError, match="divide bytes by 255"):
        robustness(ensemble, 255 * x, y)
    with pytest.raises(UnknownNameError, match="Did you mean 'pgd'"):
        robustness(ensemble, x, y, "pgd40")


@pytest.mark.parametrize("name", ["fgsm", "pgd"])
def test_a_network_that_does_not_see_its_input_is_not_moved(name: str) -> None:
    class Blind(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            return self.bias.expand(len(x), 3)

    x, y = torch.full((2, 1, 4, 4), 0.5), torch.tensor([0, 1])
    for network in (Blind(), Blind().requires_grad_(False)):
        moved = attack_of(name)(network, x, y, torch.Generator())
        assert ((moved - x).abs() <= EPSILON + 1e-6).all()
