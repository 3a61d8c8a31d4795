r"""Adversarial attacks on one member of an ensemble, and the robustness of the whole ensemble against them.

Pixels x are between 0 and 1. An attack searches for x' near x that a network misclassifies; L = CE(f(x), y):

    FGSM     x' = x + e sign(grad L(x))
    PGD      x' <- clip(x' + s sign(grad L(x')), x - e, x + e), n times, from a random point of the box or from x

both with x' kept between 0 and 1. The thesis has e = .01, s = .008, n = 40 (section 5.3.6).

The protocol is the thesis' (white box, one member): for each member in turn, x' are made with only that member's
gradients; *attack* is that member's accuracy on them, *defence* is the accuracy of the averaged prediction of all
members on the same x'. Table 5.4 prints the mean and the standard deviation over the members.

These two need only torch; Carlini-Wagner and AutoAttack come from the Adversarial Robustness Toolbox
(`attacks_art.py`), whose FGSM and PGD the tests compare with ours.

Goodfellow, Shlens, Szegedy. Explaining and harnessing adversarial examples. ICLR 2015. arXiv:1412.6572
Madry, Makelov, Schmidt, Tsipras, Vladu. Towards deep learning models resistant to attacks. ICLR 2018. arXiv:1706.06083
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from epochzero.ensemble.model import Ensemble
from epochzero.errors import UserError, needed
from epochzero.plan.init import generator
from epochzero.progress import Progress, silent
from epochzero.registry import check_known

EPSILON, STEP, STEPS = 0.01, 0.008, 40

Attack = Callable[[nn.Module, Tensor, Tensor, Generator], Tensor]
"""(network from pixels [B, C, H, W] to logits [B, classes], pixels, labels [B], generator) to pixels"""


def fgsm(network: nn.Module, x: Tensor, y: Tensor, rng: Generator, *, epsilon: float = EPSILON) -> Tensor:
    """One step along the sign of the gradient."""
    return (x + epsilon * _gradient(network, x, y).sign()).clamp(0, 1)


def pgd(
    network: nn.Module,
    x: Tensor,
    y: Tensor,
    rng: Generator,
    *,
    epsilon: float = EPSILON,
    step: float = STEP,
    steps: int = STEPS,
    random_start: bool = True,
) -> Tensor:
    """Several steps, each projected into the box around x."""
    low, high = (x - epsilon).clamp_min(0), (x + epsilon).clamp_max(1)
    attacked = x
    if random_start:
        drawn = torch.rand(x.shape, generator=rng).to(x.device)
        attacked = (x + epsilon * (2 * drawn - 1)).clamp(low, high)
    for _ in range(steps):
        attacked = (attacked + step * _gradient(network, attacked, y).sign()).clamp(low, high)
    return attacked


def _gradient(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The gradient of the summed loss by the pixels [B, C, H, W]; zeros if the loss does not depend on them."""
    x = x.detach().requires_grad_()
    loss = F.cross_entropy(network(x).float(), y, reduction="sum")
    if not loss.requires_grad:
        return torch.zeros_like(x)
    return torch.autograd.grad(loss, [x], allow_unused=True, materialize_grads=True)[0]


OWN: dict[str, Attack] = {"fgsm": fgsm, "pgd": pgd}
NAMES = (*OWN, "cw", "autoattack")


def attack_of(name: str) -> Attack:
    """An attack by its name; the last two need the extra `attacks`."""
    if name in OWN:
        return OWN[name]
    check_known(name, NAMES, f"No attack is called '{name}'")
    needed("art", "This attack", "attacks")
    from epochzero.ensemble.attacks_art import auto_attack, carlini_wagner

    return carlini_wagner if name == "cw" else auto_attack


class FromPixels(nn.Module):
    """A member as a network from pixels to logits, in evaluation mode."""

    def __init__(self, ensemble: Ensemble, place: int) -> None:
        super().__init__()
        self.ensemble, self.place = ensemble, place

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.ensemble.members[self.place](self.ensemble.standardised(pixels))
        return logits


@dataclass(frozen=True)
class Robustness:
    """Accuracies under one attack, for each member that was attacked."""

    attack: str
    attacked: tuple[float, ...]
    """accuracies of the attacked members"""
    defended: tuple[float, ...]
    """accuracies of the whole ensemble on the same images"""
    images: int

    def as_json(self) -> dict[str, Any]:
        return {
            "attack": self.attack,
            "images": self.images,
            "attack_accuracy": statistics.mean(self.attacked),
            "attack_std": _spread(self.attacked),
            "defence_accuracy": statistics.mean(self.defended),
            "defence_std": _spread(self.defended),
            "attacked": list(self.attacked),
            "defended": list(self.defended),
        }


def _spread(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def robustness(
    ensemble: Ensemble,
    pixels: Tensor,
    labels: Tensor,
    attack: str = "pgd",
    *,
    seed: int = 0,
    size: int = 128,
    progress: Progress = silent,
) -> Robustness:
    """Attack each member in turn, defend with all; pixels [N, C, H, W] between 0 and 1, labels [N]."""
    if pixels.numel() == 0 or pixels.min() < 0 or pixels.max() > 1:
        raise UserError("An attack needs images whose pixels are between 0 and 1: divide bytes by 255.")
    run = attack_of(attack)
    device = ensemble.mean.device
    ensemble.eval()
    needs = [parameter for parameter in ensemble.parameters() if parameter.requires_grad]
    for parameter in needs:
        parameter.requires_grad_(False)  # gradients of the pixels alone
    try:
        attacked, defended = [], []
        for place in range(len(ensemble.members)):
            member, rng = FromPixels(ensemble, place).eval(), generator(seed, attack, place)
            right = torch.zeros(2)  # of the member, of the ensemble
            for start in range(0, len(labels), size):
                done = place * len(labels) + start
                progress(done, len(ensemble.members) * len(labels), f"{attack} on member {place + 1}")
                x, y = (t[start : start + size].to(device) for t in (pixels, labels))
                changed = run(member, x, y, rng)
                with torch.inference_mode():
                    each = ensemble.each(ensemble.standardised(changed))  # [M, B, classes]
                right[0] += (each[place].argmax(1) == y).sum().cpu()
                right[1] += (each.mean(0).argmax(1) == y).sum().cpu()
            attacked.append(float(right[0]) / len(labels))
            defended.append(float(right[1]) / len(labels))
    finally:
        for parameter in needs:
            parameter.requires_grad_()
    return Robustness(attack, tuple(attacked), tuple(defended), len(labels))
