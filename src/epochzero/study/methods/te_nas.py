r"""TE-NAS' pruning: from all choices at every place, the least important one goes at each place, until one is left.

    importance(e, o) = mean merit of the networks of this round that have choice o at place e

In each round `networks` networks are drawn from the choices that are left. Then at every place that has more than one
choice left the least important one is pruned; where two have the same, the later one. A network without a score counts
as the worst of its round; a choice that no network of the round has is kept. The network that is left is asked for
last. On nb201 that is 4 rounds, on nats_sss 7; the default budget has room for all of them.

TE-NAS itself judges a choice by what its removal does to the one supernet that holds all that are left: kappa falls, or
regions become fewer. Here networks that are drawn from it stand for the supernet, since a search knows no networks; the
merit is TE-NAS' with `--proxy "te_rank(ntk_cond(of=sum),linear_regions)"`.

Chen, Gong, Wang. Neural architecture search on ImageNet in four GPU hours: a theoretically inspired perspective. ICLR
2021. arXiv:2102.11535
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import islice
from random import Random
from typing import Any

from epochzero.errors import UserError
from epochzero.registry import searches
from epochzero.study.methods.base import Choices, Floats, Sampler, Unseen, lowest

DRAWS = 200


@searches.registers("te_nas")
class TENAS:
    """Pruning by importance."""

    @staticmethod
    def budget(space: Any, options: Mapping[str, Any]) -> int:
        """Rounds until each place has one choice left, and the network that is left."""
        return (len(Choices.of(space, "te_nas").choices) - 1) * int(options["networks"]) + 1

    def __init__(self, space: Sampler, seed: int, *, networks: int = 64, batch: int = 16) -> None:
        if networks < 1:
            raise UserError(f"The search te_nas draws at least 1 network in a round, not {networks}.")
        self.of = Choices.of(space, "te_nas")
        self.rng, self.batch, self.networks = Random(seed), batch, networks
        self.left: list[list[Any]] = [list(self.of.choices) for _ in range(self.of.places)]
        """at each place the choices that are left"""
        self.unseen = Unseen()
        self.round: list[Any] = []
        self.merits: list[float] = []
        self.over = False

    @property
    def chosen(self) -> Any | None:
        """The network that is left, once there is one, if it is within the limits."""
        return self._survivor if self._survivor is not None and self.of.fits(self._survivor) else None

    @property
    def _survivor(self) -> Any | None:
        return tuple(only for (only,) in self.left) if all(len(some) == 1 for some in self.left) else None

    def ask(self, n: int) -> list[Any]:
        while not self.over:
            room = self.networks - len(self.round)
            if asked := list(islice(iter(self._drawn, None), min(n, room))):
                return asked
            self._prune()
        return []

    def _drawn(self) -> Any | None:
        """A new network of the remaining choices; None if there is none."""
        return self.unseen.first((tuple(map(self.rng.choice, self.left)) for _ in range(DRAWS)), self.of.fits)

    def tell(self, archs: Sequence[Any], merits: Sequence[float | None]) -> None:
        self.round += archs
        self.merits += lowest(merits)

    def revise(self, merits: Floats) -> None:
        self.merits = merits[len(merits) - len(self.round) :].tolist()

    def _prune(self) -> None:
        """Every place loses a choice; the search is over when there is none to lose."""
        if self._survivor is not None:
            self.over = True
            return
        scored = [merit for merit in self.merits if merit > -math.inf]
        worst = min(scored, default=0.0)
        for place, some in enumerate(self.left):
            if len(some) > 1:
                self.left[place] = self._without_the_least(place, some, worst)
        self.round, self.merits = [], []

    def _without_the_least(self, place: int, some: list[Any], worst: float) -> list[Any]:
        merits: dict[Any, list[float]] = {choice: [] for choice in some}
        for arch, merit in zip(self.round, self.merits, strict=True):
            merits[arch[place]].append(max(merit, worst))
        means = {
            choice: sum(of_choice) / len(of_choice) if of_choice else math.inf for choice, of_choice in merits.items()
        }
        least = min(reversed(some), key=lambda choice: means[choice])
        return [choice for choice in some if choice != least]
