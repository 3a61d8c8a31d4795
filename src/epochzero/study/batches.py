"""The batches of a search, of which some may be asked for before the scores of earlier ones are told.

A search waits for the slowest network of each batch, and its workers with it. With `ahead` batches asked for in advance
they go on with the next one. Scores are told in the order of asking, whenever they come: the same settings are the same
search, with any workers, and a killed one resumes. The price: a batch is chosen without the scores of the `ahead`
batches before it, so that another number of them is another search.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from epochzero.errors import UserError
from epochzero.registry import searches

if TYPE_CHECKING:
    from epochzero.store import Store
    from epochzero.study.methods.base import Search
    from epochzero.study.task import Task

MOST = 1000
"""batches in advance"""


def check_ahead(method: str, ahead: int) -> None:
    """UserError for an invalid number of batches, or a search that has to know the scores of all others."""
    if not 0 <= ahead <= MOST:
        raise UserError(f"--ahead takes a number of batches from 0 to {MOST:,}, not {ahead}.")
    if ahead and not getattr(searches[method], "overlaps", False):
        able = ", ".join(name for name in searches if getattr(searches[name], "overlaps", False))
        raise UserError(
            f"The search {method} chooses each batch by the scores of all before, so it cannot be ahead of them: leave "
            f"out --ahead, or use one of {able}."
        )


class Batches:
    """Asks the search for batches, and lets the executor begin with those in advance."""

    def __init__(self, search: Search, task: Task, store: Store) -> None:
        self.search, self.task, self.store = search, task, store
        self._waiting: deque[list[Any]] = deque()
        self._networks = 0
        """in the batches that wait"""

    def next(self, most: int) -> list[Any]:
        """The next batch to tell, empty if there are no more; `most` is the number of networks left in the budget."""
        while len(self._waiting) <= self.task.ahead and self._networks < most:
            archs = self.search.ask(min(self.search.batch, most - self._networks))
            if not archs:
                break
            if self.task.ahead:
                self.task.begin(archs, self.store)
            self._waiting.append(archs)
            self._networks += len(archs)
        if not self._waiting:
            return []
        self._networks -= len(self._waiting[0])
        return self._waiting.popleft()
