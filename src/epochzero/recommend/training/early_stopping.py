"""Early stopping: the state of the weights with the lowest log loss on the validation rows is the result.

The first state counts too, so that a training never ends with a model that is worse on these rows than its start. After
`patience` checks without progress the weights of the best state return and the rate falls; when it has fallen as often
as the settings say, training stops. A model that is no better than the base rate by then starts once more, at a tenth
of the rate. One that is worse than another start, such as the linear model within it, goes on from that start: so it
never ends behind it on these rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from epochzero.errors import DataError
from epochzero.recommend.data.table import CtrTable
from epochzero.recommend.training.settings import Settings

FALL, RETRY = 0.2, 0.1
"""factors of the rate"""
PROGRESS = 0.001
"""a model whose log loss is not lower than that of the base rate by this has learnt nothing"""


def copied(model: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in model.state_dict().items()}


class EarlyStopping:
    """The best state so far."""

    def __init__(self, model: nn.Module, settings: Settings, base: float) -> None:
        """`base` is the log loss of the base rate on the validation rows."""
        self.model, self.settings, self.base = model, settings, base
        self.loss, self.step, self.weights = math.inf, 0, dict[str, Tensor]()
        self.start = copied(model)
        """the initial weights"""
        self.waited = self.fallen = 0
        """checks since the best state; falls of the rate"""
        self.retried = self.restarted = False
        self.history: list[float] = []
        """log loss on the validation rows at each check"""

    @property
    def factor(self) -> float:
        """Of the rate"""
        return float(FALL**self.fallen * (RETRY if self.retried else 1))

    @property
    def at_base(self) -> bool:
        """True if the best state has learnt nothing."""
        return self.loss > self.base - PROGRESS

    def told(self, loss: float, step: int) -> bool:
        """Takes the log loss of the model as it is, infinite if training diverged; True if training should stop."""
        self.history.append(loss)
        if loss < self.loss:
            self.loss, self.step, self.waited, self.weights = loss, step, 0, copied(self.model)
            return False
        self.waited = self.settings.patience if math.isinf(loss) else self.waited + 1
        if self.waited < self.settings.patience:
            return False
        self.fallen, self.waited = self.fallen + 1, 0
        self.model.load_state_dict(self.weights)
        if self.fallen <= self.settings.falls:
            return False
        if self.retried or not self.at_base:
            return True
        self.model.load_state_dict(self.start)
        self.retried, self.fallen = True, 0
        return False

    def better_from(self, other: Mapping[str, Tensor], loss: Callable[[], float]) -> bool:
        """True if the model is better with these initial weights than its best state; it then has them."""
        self.restarted = True
        self.model.load_state_dict(self.start | dict(other))
        if (value := loss()) >= self.loss:
            return False
        self.history.append(value)
        self.loss, self.weights, self.waited, self.fallen = value, copied(self.model), 0, 0
        return True

    def state(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("model", "settings")}

    def restore(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


def base_loss(table: CtrTable) -> float:
    """The log loss of the training rows' base rate on the validation rows."""
    if not (count := table.size("val")):
        raise DataError(
            f"The table {table.folder} has no validation rows, which early stopping needs: mark some as val in its "
            "split column, or train with --option patience=0."
        )
    rate, clicks = table.clicks("train") / max(1, table.size("train")), table.clicks("val")
    rate = min(max(rate, 1e-6), 1 - 1e-6)
    return -(clicks * math.log(rate) + (count - clicks) * math.log(1 - rate)) / count
