r"""REINFORCE: a probability for each choice at each place, moved towards what was better than usual.

    p_e(o) = softmax(theta_e)_o
    theta  = theta + rate * mean_batch (r - baseline) * grad log p(arch)        grad log p = onehot(arch) - p

The reward r is the merit in units of the spread of the merits so far; the baseline is a moving average with momentum
`momentum`. A network without a score counts as the worst so far. The step is Adam's. Where what
the policy draws was asked for before, a neighbour of it is taken, and where that is not new either, a uniform draw.

Williams. Simple statistical gradient-following algorithms for connectionist reinforcement learning. Machine Learning,
1992; as a baseline in Dong, Yang. NAS-Bench-201. ICLR 2020. arXiv:2001.00326
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from epochzero.errors import UserError
from epochzero.registry import searches
from epochzero.study.methods.base import Choices, Floats, OneByOne, Sampler

DRAWS, MUTATIONS = 4, 20
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


@searches.registers("reinforce")
class Reinforce(OneByOne):
    """Policy gradient over independent choices."""

    def __init__(self, space: Sampler, seed: int, *, rate: float = 0.1, momentum: float = 0.9, batch: int = 1) -> None:
        if not (0 < rate < math.inf and 0 <= momentum < 1):
            raise UserError(
                f"The search reinforce takes a rate above 0 and a momentum of 0 to 1, not {rate}, {momentum}."
            )
        super().__init__(space, seed, batch)
        self.rate, self.momentum = rate, momentum
        self.of = Choices.of(space, "reinforce")
        self.place = {choice: i for i, choice in enumerate(self.of.choices)}
        self.theta: Floats = np.zeros((self.of.places, len(self.of.choices)))
        self.first, self.second = np.zeros_like(self.theta), np.zeros_like(self.theta)
        self.baseline: float | None = None
        self.steps = self.count = 0
        self.mean = self.squares = 0.0
        self.worst = math.inf

    @property
    def policy(self) -> Floats:
        """The probability of each choice at each place, [places, choices]."""
        powers = np.exp(self.theta - self.theta.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    def _next(self) -> Any | None:
        """Something new of the policy's, else a neighbour of that, else of the space's."""
        summed = np.cumsum(self.policy, axis=1).tolist()
        for _ in range(DRAWS):
            arch = tuple(self.rng.choices(self.of.choices, cum_weights=row)[0] for row in summed)
            if arch not in self.unseen.seen and self.of.fits(arch):
                self.unseen.seen.add(arch)
                return arch
        near = self.unseen.draw(lambda: self.space.mutate(arch, self.rng), MUTATIONS)
        return super()._next() if near is None else near

    def tell(self, archs: Sequence[Any], merits: Sequence[float | None]) -> None:
        for merit in merits:
            if merit is not None:
                self._note(merit)
        if not self.count:
            return
        gradient, policy = np.zeros_like(self.theta), self.policy
        places = np.arange(self.of.places)
        for arch, merit in zip(archs, merits, strict=True):
            chosen = -policy
            chosen[places, [self.place[choice] for choice in arch]] += 1
            gradient += self._advantage(self.worst if merit is None else merit) * chosen / len(archs)
        self._step(gradient)

    def _note(self, merit: float) -> None:
        """Mean and spread of the merits so far (Welford)."""
        self.count += 1
        away = merit - self.mean
        self.mean += away / self.count
        self.squares += away * (merit - self.mean)
        self.worst = min(self.worst, merit)

    def _advantage(self, merit: float) -> float:
        """The merit minus the baseline, which moves afterwards."""
        spread = math.sqrt(self.squares / self.count) or 1.0
        baseline = self.mean if self.baseline is None else self.baseline
        self.baseline = self.momentum * baseline + (1 - self.momentum) * merit
        return (merit - baseline) / spread

    def _step(self, gradient: Floats) -> None:
        """Upwards, as Adam does."""
        self.steps += 1
        self.first = BETA1 * self.first + (1 - BETA1) * gradient
        self.second = BETA2 * self.second + (1 - BETA2) * gradient**2
        first, second = self.first / (1 - BETA1**self.steps), self.second / (1 - BETA2**self.steps)
        self.theta = self.theta + self.rate * first / (np.sqrt(second) + EPSILON)
