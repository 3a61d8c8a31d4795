"""The settings of a training, by default NASRec's; recipes.py has the recipes.

NASRec: spaces/nasrec.py
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from epochzero.errors import UserError
from epochzero.recommend.supernet.warm_up import rising_and_falling
from epochzero.registry import check_known

OPTIMIZERS = ("adagrad", "adam")


@dataclass(frozen=True)
class Settings:
    """The settings of a training, by default the published ones."""

    batch_size: int = 512
    epochs: int = 1
    """at most, with early stopping"""
    highest: float = 0.12
    """learning rate"""
    lowest: float = 1e-8
    rise: float = 0.1
    """share of steps in which the rate rises; with early stopping, of the first epoch"""
    eps: float = 1e-2
    clip: float = 5.0
    optimizer: str = "adagrad"
    weight_decay: float = 0.0
    """share by which a step at rate 1 shrinks weights outside the embeddings; `embedding_decay`, the named rows"""
    embedding_decay: float = 0.0
    embedding_scale: float = 0.0
    """standard deviation of initial embeddings; 0: as published, which depends on the table's size"""
    shuffle: bool = False
    patience: int = 0
    """checks on the validation rows without progress before the rate falls, or training stops; 0: no early stopping"""
    checks: int = 2
    """in an epoch"""
    falls: int = 0
    """number of times that the rate falls to a fifth, from the best state on, before training stops"""
    sweep: bool = False
    """true if the rate is the best of a third, one and three times `highest` after one check"""

    def __post_init__(self) -> None:
        check_known(self.optimizer, OPTIMIZERS, f"No optimizer is called '{self.optimizer}'")
        if min(self.batch_size, self.epochs, self.checks) < 1 or not 0 <= self.rise < 1:
            raise UserError(
                "Training needs batches of at least 1 row, at least 1 epoch, at least 1 check in it, and a rise from 0 "
                "to below 1."
            )
        if not all(math.isfinite(x) and x > 0 for x in (self.highest, self.lowest, self.eps, self.clip)):
            raise UserError("Rates, eps and clip have to be finite numbers above 0.")
        others = self.weight_decay, self.embedding_decay, self.embedding_scale, self.patience, self.falls
        if not all(math.isfinite(x) and x >= 0 for x in others):
            raise UserError("Decays, embedding_scale, patience and falls have to be finite and at least 0.")

    def rate(self, step: int, steps: int) -> float:
        """The learning rate at a step, counted from 0; with early stopping, `steps` are those of an epoch."""
        if self.patience:
            return self.highest * min(1.0, (step + 1) / max(1, round(self.rise * steps)))
        return rising_and_falling(step, steps, self.highest, self.lowest, self.rise)

    def told(self) -> dict[str, Any]:
        """As a dictionary for keys and checkpoints: a setting that came later is left out where it changes nothing."""
        late = {one.name: one.default for one in fields(self)[7:]}
        return {name: value for name, value in asdict(self).items() if late.get(name, ...) != value}

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Settings:
        return cls(**told)
