"""Contestants that are chosen by accuracies: on the other spaces, or with hindsight.

    best proxy            the one with the highest mean Spearman
    best of up to k       rank(a,b,...), of up to k proxies: each size extends the BEAM best of the size before

`left out` chooses for each space on the boards of all other spaces, so that nothing of a space's accuracies is used
there. `hindsight` chooses on all boards at once, and `of each table` for each board: bounds that no honest choice has.

While choosing, a network that lacks a score has the lowest rank, and combinations are compared on one repeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from epochzero.evaluate.leaderboard.boards import Board, Repeats
from epochzero.objectives.objective import Objective
from epochzero.stats.bootstrap import Floats
from epochzero.stats.ranks import Ties

BEAM = 40
"""number of combinations that are extended"""
METHOD = "rank"

Members = tuple[str, ...]


@dataclass(frozen=True)
class Chosen:
    """A contestant that may be another objective on each board."""

    about: str
    objectives: Mapping[str, Objective]
    """by board"""

    def __call__(self, board: Board) -> Repeats | None:
        return board.merits(self.objectives[board.name])


class Choice:
    """Chooses single proxies and combinations by their Spearman on some boards."""

    def __init__(self, boards: Sequence[Board], objectives: Sequence[Objective]) -> None:
        self.boards = boards
        everywhere = [one for one in objectives if not one.method and all(board.has(one) for board in boards)]
        self._proxies = {one.text: one.proxies[0] for one in everywhere}
        self._ranks = {board.name: {name: _log_ranks(board, name, self) for name in self._proxies} for board in boards}
        self._truth = {board.name: _centred(board.truth) for board in boards}
        self._known: dict[tuple[str, Members], float] = {}

    def objective(self, members: Members) -> Objective:
        return Objective(tuple(self._proxies[name] for name in members), METHOD if len(members) > 1 else "")

    def contestants(self, most: int) -> dict[str, Chosen]:
        """Returns the chosen contestants with combinations of up to `most` proxies; none without two proxies."""
        if len(self._proxies) < 2:
            return {}
        spaces = {board.space for board in self.boards}
        sizes = {1: "proxy"} | ({most: f"of up to {most}"} if most > 1 else {})
        found: dict[str, Chosen] = {}
        each = {board.name: self.best([board], 1) for board in self.boards}
        found["best proxy of each table"] = self._chosen("for each table, with hindsight", each)
        for size, what in sizes.items():
            whole = self.best(self.boards, size)
            everywhere = {board.name: whole for board in self.boards}
            found[f"best {what}, hindsight"] = self._chosen("on all tables, with hindsight", everywhere)
            if len(spaces) > 1:
                other = {space: [board for board in self.boards if board.space != space] for space in spaces}
                by_space = {space: self.best(boards, size) for space, boards in other.items()}
                left_out = {board.name: by_space[board.space] for board in self.boards}
                found[f"best {what}, left out"] = self._chosen("on the tables of all other spaces", left_out)
        return found

    def _chosen(self, about: str, members: Mapping[str, Members]) -> Chosen:
        return Chosen(f"chosen {about}", {board: self.objective(names) for board, names in members.items()})

    def best(self, boards: Sequence[Board], most: int) -> Members:
        """Returns the best single proxy, or combination of up to `most`, by mean Spearman over these boards."""
        level: list[Members] = [(name,) for name in self._proxies]
        best = max(level, key=lambda members: self.mean(boards, members))
        for _ in range(most - 1):
            first = sorted(level, key=lambda members: -self.mean(boards, members))[:BEAM]
            level = sorted({tuple(sorted({*old, name})) for old in first for name in self._proxies if name not in old})
            best = max([best, *level], key=lambda members: self.mean(boards, members))
        return best

    def mean(self, boards: Iterable[Board], members: Members) -> float:
        return float(np.mean([self._rho(board.name, members) for board in boards]))

    def _rho(self, board: str, members: Members) -> float:
        """Returns Spearman of the sum of the members' ranks."""
        if (board, members) not in self._known:
            ranks = self._ranks[board]
            merit = _centred(np.sum([ranks[name] for name in members], axis=0))
            self._known[board, members] = float(merit @ self._truth[board])
        return self._known[board, members]


def _log_ranks(board: Board, name: str, choice: Choice) -> Floats:
    """Returns the logarithm of the rank share in the first repeat; the lowest for networks without a score."""
    rows = board.merits(choice.objective((name,)))
    assert rows is not None
    values = np.array([score.value if score.ok else -np.inf for score in rows[0]])
    midranks = Ties(values).centred_midranks(np.ones((len(values), 1)))[0][:, 0] + (len(values) + 1) / 2
    logarithms: Floats = np.log(midranks / len(values))
    return logarithms


def _centred(values: Floats) -> Floats:
    """Returns centred midranks of length 1, or zeros for equal values."""
    ranks, variance = Ties(values).centred_midranks(np.ones((len(values), 1)))
    unit: Floats = ranks[:, 0] / np.sqrt(variance[0] if variance[0] > 0 else 1.0)
    return unit
