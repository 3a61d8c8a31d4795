"""Scores of proxies that the files do not have, such as one's own, for the networks of all boards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from epochzero.errors import UserError
from epochzero.evaluate.leaderboard.boards import Board
from epochzero.executors.base import Executor, population
from epochzero.executors.local import LOCAL
from epochzero.progress import Progress, silent
from epochzero.registry import spaces
from epochzero.store import Store
from epochzero.store.sqlite import ScoreRow
from epochzero.types import Origin, Score, Shape

if TYPE_CHECKING:
    from epochzero.engine import Proxy
    from epochzero.study.task import Task

CHUNK = 8
"""networks that are scored and stored in one step, for each of several workers, at least"""


@dataclass(frozen=True)
class Scoring:
    """Data, weights and machine of the scores."""

    data: str = "pink"
    input_shape: Shape | None = None
    """of noise; default: that of each space"""
    classes: int | None = None
    batch_size: int = 64
    seed: int = 0
    init: str = "default"
    device: str = "cpu"
    executor: Executor = LOCAL

    def task(self, space: str, proxies: Sequence[Proxy]) -> Task:
        """The task for the networks of a space."""
        from epochzero.engine.space_networks import batch_for
        from epochzero.study.task import Task

        if space not in spaces:
            raise UserError(f"The networks of '{space}' cannot be built: no space has that name.")
        batch = batch_for(
            spaces[space],
            self.data,
            input_shape=self.input_shape,
            num_classes=self.classes,
            size=self.batch_size,
            seed=self.seed,
        )
        return Task(spaces[space], proxies, batch, Origin(self.init, self.seed), self.device, self.executor)


def with_scores(
    boards: Sequence[Board], proxies: Sequence[Proxy], scoring: Scoring, store: Store, progress: Progress = silent
) -> list[Board]:
    """Returns the boards with scores of these proxies, which the store keeps."""
    tasks = {space: scoring.task(space, proxies) for space in dict.fromkeys(board.space for board in boards)}
    total, done, added = sum(len(board.archs) for board in boards), 0, []
    for board in boards:
        task = tasks[board.space]
        archs = [task.space.parse(arch) for arch in board.archs]
        scores: list[dict[str, Score]] = []
        step = max(CHUNK, population(task.device)) * task.executor.workers
        for start in range(0, len(archs), step):
            scores += _scored(task, archs[start : start + step], store)
            done += len(archs[start : start + step])
            progress(done, total, board.name)
        repeat = task.setting.batch, task.setting.origin
        own = {proxy.text: {repeat: [one[proxy.text] for one in scores]} for proxy in proxies}
        added.append(replace(board, scores=board.scores | own))
    return added


def _scored(task: Task, archs: Sequence[Any], store: Store) -> list[dict[str, Score]]:
    new: set[int] = set()
    scores, _ = task.evaluate(archs, store, None, 0, new)
    setting = task.setting
    store.add_scores(
        ScoreRow(
            setting.space,
            task.space.text(archs[i]),
            proxy.key,
            setting.batch,
            setting.origin,
            scores[i][proxy.text].value if scores[i][proxy.text].ok else None,
            scores[i][proxy.text].status,
            scores[i][proxy.text].why,
            0.0,
        )
        for i in sorted(new)
        for proxy in task.proxies
    )
    return scores
