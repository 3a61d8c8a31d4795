r"""Carlini-Wagner and AutoAttack from the Adversarial Robustness Toolbox (ART). Needs the extra `attacks`.

    Carlini-Wagner   min |x' - x|^2 + c max(z_y - max_{k != y} z_k, 0) over x' = (tanh w + 1) / 2, c by bisection
    AutoAttack       two kinds of automatic PGD, DeepFool and Square, on the images that are still classified correctly

The thesis has, for the first, confidence 0, c in [.001, 10], 3 steps of bisection, 50 of optimisation, rate .01. ART's
three constants are a first one and its doubles or halves: 2.5 stays in that range. It steps along the gradient with a
line search, where the thesis uses Adam. AutoAttack has the box of its paper, 8/255, and the attacks of ART's version:
DeepFool where the paper has FAB. They are combined here, since ART's own loop needs one more package.

Carlini, Wagner. Towards evaluating the robustness of neural networks. IEEE S&P 2017. arXiv:1608.04644
Croce, Hein. Reliable evaluation of adversarial robustness with an ensemble of diverse parameter-free attacks. ICML
2020. arXiv:2003.01690
Nicolae et al. Adversarial Robustness Toolbox. 2018. arXiv:1807.01069
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor, nn

CONSTANT, BISECTIONS, STEPS, RATE = 2.5, 3, 50, 0.01
BOX = 8 / 255
ITERATIONS, RESTARTS, QUERIES = 100, 5, 5000


def carlini_wagner(network: nn.Module, x: Tensor, y: Tensor, rng: Generator) -> Tensor:
    """The misclassified images nearest to the originals, by the sum of squares, that the attack finds."""
    with _toolbox(rng) as attacks:
        attack = attacks.CarliniL2Method(
            classifier_of(network, x),
            confidence=0.0,
            learning_rate=RATE,
            binary_search_steps=BISECTIONS,
            max_iter=STEPS,
            initial_const=CONSTANT,
            batch_size=len(x),
            verbose=False,
        )
        return _run(attack, x, y)


def auto_attack(network: nn.Module, x: Tensor, y: Tensor, rng: Generator) -> Tensor:
    """Several attacks in turn, each on the images that are still classified correctly; changes stay in the box."""
    attacked = x.clone()
    with _toolbox(rng) as attacks:
        classifier, size = classifier_of(network, x), len(x)
        box = {"eps": BOX, "eps_step": 2 * BOX, "max_iter": ITERATIONS, "nb_random_init": RESTARTS, "batch_size": size}
        quiet = {"verbose": False}
        several = (
            attacks.AutoProjectedGradientDescent(classifier, loss_type="cross_entropy", **box, **quiet),
            attacks.AutoProjectedGradientDescent(classifier, loss_type="difference_logits_ratio", **box, **quiet),
            attacks.DeepFool(classifier, max_iter=ITERATIONS, epsilon=1e-3, nb_grads=10, batch_size=size, **quiet),
            attacks.SquareAttack(classifier, max_iter=QUERIES, eps=BOX, p_init=0.8, nb_restarts=RESTARTS, **quiet),
        )
        for attack in several:
            with torch.no_grad():
                (left,) = (network(attacked).argmax(1) == y).nonzero(as_tuple=True)  # [n]
            if not len(left):
                break
            changed = _run(attack, x[left], y[left])
            near = (changed - x[left]).abs().flatten(1).amax(1) <= BOX + 1e-6
            with torch.no_grad():
                mistaken = network(changed).argmax(1) != y[left]
            attacked[left[near & mistaken]] = changed[near & mistaken]
    return attacked


def classifier_of(network: nn.Module, x: Tensor) -> Any:
    """The network as ART's classifier from pixels between 0 and 1 to logits."""
    from art.estimators.classification import PyTorchClassifier

    with torch.no_grad():
        classes = network(x[:1]).shape[1]
    return PyTorchClassifier(
        network,
        nn.CrossEntropyLoss(),
        tuple(x.shape[1:]),
        classes,
        clip_values=(0.0, 1.0),
        device_type="gpu" if x.is_cuda else "cpu",
    )


def _run(attack: Any, x: Tensor, y: Tensor) -> Tensor:
    changed = attack.generate(x.cpu().numpy(), y.cpu().numpy())
    return torch.from_numpy(changed).to(x.device, x.dtype)


@contextmanager
def _toolbox(rng: Generator) -> Iterator[Any]:
    """ART's attacks, without warnings; numpy's global random state, which they use, is seeded and restored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from art.attacks import evasion
    before = np.random.get_state()
    np.random.seed(int(torch.randint(2**31, (), generator=rng)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield evasion
    finally:
        np.random.set_state(before)
