"""The leaderboard: stored scores, accuracy tables and contestants, put together.

    made = leaderboard(Settings(scores=[Path("docs/data")], tables=["nb201=nb201.csv.gz:cifar10_test"]))
    made.rows[0].name, made.rows[0].mean

Nothing is run, and torch is not loaded, unless a proxy is added or a space has to be loaded to read its architectures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from epochzero.engine.declared import declared
from epochzero.engine.proxy import Proxy, parse_list, split_list
from epochzero.errors import UnknownNameError, UserError
from epochzero.evaluate.leaderboard.added import Scoring, with_scores
from epochzero.evaluate.leaderboard.boards import SIZES, Board, boards_of, targets_of
from epochzero.evaluate.leaderboard.chosen import Choice, Chosen
from epochzero.evaluate.leaderboard.standings import Contestant, Row, Rules, proxy_contestant, standings
from epochzero.evaluate.leaderboard.stored import read_stored
from epochzero.objectives.auto import NAME, VERSIONS
from epochzero.objectives.objective import Objective, parse_objective
from epochzero.progress import Progress, silent
from epochzero.store import Store

PUBLISHED = (
    *(f"{NAME}:{version}" for version in VERSIONS),
    "rank(az_expressivity,az_progressivity,az_trainability,flops)",
    "te_rank(ntk_cond(of=sum),linear_regions)",
    "rank(params,flops)",
)
"""combinations that are compared if their scores are there: all versions of auto, AZ-NAS, TE-NAS, and size alone"""


@dataclass(frozen=True)
class Settings:
    """The scores that are compared, and the way."""

    scores: Sequence[Path]
    """files of scores, and folders of them"""
    tables: Sequence[str]
    """`SPACE=FILE:COLUMN,COLUMN`, or folders with tables of known names"""
    proxies: str | None = None
    """proxies and combinations; default: all stored proxies, and published combinations"""
    add: str | None = None
    """proxies to score now, in addition"""
    networks: int = 1000
    """of each table, at most"""
    choose: int = 3
    """most proxies of a combination that is chosen by accuracies; 0 for no chosen contestants"""
    rules: Rules = Rules()


@dataclass(frozen=True)
class Leaderboard:
    """The standings, and what they were made from."""

    settings: Settings
    boards: list[Board]
    rows: list[Row]
    chosen: Mapping[str, Chosen]
    files: Mapping[str, int]
    """number of scores by file"""
    notes: list[str] = field(default_factory=list)


def leaderboard(
    settings: Settings, scoring: Scoring = Scoring(), store: Store | None = None, progress: Progress = silent
) -> Leaderboard:
    """Reads scores and tables, scores what is added, and compares."""
    if store is None:
        with Store.open(":memory:") as memory:
            return leaderboard(settings, scoring, memory, progress)
    if settings.networks < 3 or settings.choose < 0:
        raise UserError("A table needs at least 3 networks, and a combination no negative number of proxies.")
    targets = targets_of(settings.tables)
    added = parse_list(settings.add) if settings.add else []
    stored = read_stored(settings.scores)
    boards = boards_of(targets, stored, settings.networks, settings.rules.seed)
    if added:
        boards = with_scores(boards, added, scoring, store, progress)
    objectives, notes = _objectives(settings, boards, added)
    chosen = Choice(boards, objectives).contestants(settings.choose) if settings.choose else {}
    contestants: dict[str, Contestant] = {one.text: proxy_contestant(one) for one in objectives}
    rows = standings(boards, contestants | chosen, settings.rules, progress)
    return Leaderboard(settings, boards, rows, chosen, stored.files, [*_notes(boards), *notes])


def _objectives(
    settings: Settings, boards: Sequence[Board], added: Sequence[Proxy]
) -> tuple[list[Objective], list[str]]:
    """Returns the contestants with scores somewhere, and notes on those without."""
    own = {proxy.text: proxy for proxy in added}

    def member(text: str) -> Proxy:
        return own.get(text) or declared(text)

    there = list(dict.fromkeys(name for board in boards for name in board.scores))
    if settings.proxies is not None:
        asked = [*split_list(settings.proxies), *own, "flops"]
        objectives = [parse_objective(text, member) for text in dict.fromkeys(asked)]
        lacking = [one.text for one in objectives if not any(board.has(one) for board in boards)]
        if named := [text for text in lacking if text != "flops"]:
            raise UserError(
                f"There are no stored scores of {', '.join(named)} for any table: score them with --add, or leave them "
                f"out. Stored: {', '.join(there)}."
            )
        return [one for one in objectives if one.text not in lacking], []
    objectives, unknown = [], []
    for text in (*there, *PUBLISHED):
        try:
            objective = parse_objective(text, member)
        except UnknownNameError:
            unknown.append(text)
            continue
        if any(board.has(objective) for board in boards):
            objectives.append(objective)
    notes = [f"Scores of proxies that are not known here are left out: {', '.join(unknown)}."] if unknown else []
    return objectives, notes


def _notes(boards: Sequence[Board]) -> list[str]:
    notes = [f"{board.name}: {note}" for board in boards for note in board.notes]
    sizeless = [board.name for board in boards if len(board.sizes) < len(SIZES)]
    if sizeless:
        notes.append(
            f"Not all sizes are stored, so there are no partial correlations given them: {', '.join(sizeless)}."
        )
    if len({board.space for board in boards}) == 1:
        notes.append("All tables are of one space: nothing can be chosen on other spaces.")
    return notes
