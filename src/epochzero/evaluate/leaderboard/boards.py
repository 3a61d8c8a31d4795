"""Boards: the networks of an accuracy table that have stored scores, with both.

    boards_of(targets_of(["nb201=nb201.csv.gz:cifar10_test"]), stored, networks=1000)

A board takes the networks with scores by the most proxies, at random among equals. If networks were scored on several
data, it takes the target's own, such as CIFAR-100 images for `cifar100_test`, else those with the most scores; a proxy
that was not run on them keeps its others. Scores with TF32 count only where there are no others. A proxy belongs to a
board if it was run on half of the networks or more, and a repeat, with other weights or another batch, if it covers as
many.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from epochzero.errors import DataError, UserError
from epochzero.evaluate.leaderboard.stored import OTHER_NAMES, ByRepeat, Repeat, StoredScores
from epochzero.evaluate.sample import unit_of
from epochzero.objectives.objective import Objective
from epochzero.registry import near_miss, spaces
from epochzero.stats.bootstrap import Floats
from epochzero.tables import AccuracyTable
from epochzero.tables.columns import described
from epochzero.tables.table import ENDING, TABLES, as_number
from epochzero.types import Score

KNOWN: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("nb201", ("nb201",), ("cifar10_test", "cifar100_test", "imagenet16_test", "ninapro_nb360", "darcy_nb360")),
    ("nb101_15k", ("nb101",), ("test_acc_108ep",)),
    ("accelnb_mnasnet", ("mnasnet",), ("imagenet_top1",)),
    ("transnas_micro_scene_half", ("transnas_micro_scene", "transnas_micro"), ("class_scene_val_acc",)),
    ("darts_500", ("darts",), ("cifar10_val_acc",)),
    ("autoformer_vitbench_100", ("autoformer_tiny",), ("imagenet_supernet", "cifar100")),
    ("timm_imagenet_165", ("published",), ("top1",)),
)
"""tables that are found by name in a folder: file without its ending, spaces that its scores may have, columns"""
DRAWN = re.compile(r"\w+:\d+")
"""an origin of weights that were drawn and not trained"""
COVERED = 0.5
"""least share of a board's networks that a proxy was run on"""
LEAST = 3
"""fewest networks of a board"""
SIZES = ("params", "flops")
NOT_RUN = "the proxy was not run on this network"
TF32 = " TF32"
"""the end of a batch's name in scores with less precision"""
Repeats = list[list[Score]]
"""A score or merit of each network in each repeat [S][n]."""


@dataclass(frozen=True)
class Target:
    """A column of an accuracy table, of which more is better unless `higher` is false."""

    spaces: tuple[str, ...]
    """names that the space may have in files of scores, the first with scores counts"""
    path: Path
    column: str
    higher: bool = True
    optional: bool = False
    """true for a table that was found in a folder: it is left out if no scores are stored for it"""


def targets_of(texts: Iterable[str]) -> list[Target]:
    """Returns the targets of `SPACE=FILE:COLUMN,COLUMN`, and those of all known tables of a folder."""
    found: list[Target] = []
    for text in texts:
        space, equals, rest = text.partition("=")
        if equals:
            file, colon, columns = rest.rpartition(":")
            names = [name.strip() for name in columns.split(",") if name.strip()]
            if not colon or not names or not space:
                raise UserError(f"--table takes SPACE=FILE:COLUMN or a folder, not {text!r}.")
            space = OTHER_NAMES.get(space, space)
            found += [Target((space,), Path(file), name.removeprefix("-"), name[0] != "-") for name in names]
        else:
            found += _in_folder(Path(text))
    if not found:
        raise UserError("No table is named: give --table SPACE=FILE:COLUMN, such as nb201=nb201.csv.gz:cifar10_test.")
    return list(dict.fromkeys(found))


def _in_folder(folder: Path) -> list[Target]:
    if not folder.is_dir():
        raise UserError(f"--table takes SPACE=FILE:COLUMN or a folder, and there is no folder '{folder}'.")
    found = []
    for stem, names, columns in KNOWN:
        files = [folder / f"{stem}{ending}" for ending in (ENDING, *TABLES)]
        file = next((file for file in files if file.is_file()), None)
        found += [] if file is None else [Target(names, file, column, optional=True) for column in columns]
    if not found:
        known = ", ".join(f"{stem}.csv.gz" for stem, _, _ in KNOWN)
        raise UserError(f"The folder '{folder}' has no table of a known name ({known}): give SPACE=FILE:COLUMN.")
    return found


@dataclass(frozen=True)
class Board:
    """Networks of one table with the truth about them and their scores."""

    name: str
    target: Target
    space: str
    archs: list[str]
    """as the accuracy table writes them"""
    truth: Floats
    """more is better"""
    scores: dict[str, dict[Repeat, list[Score]]]
    """by proxy and repeat, of each network"""
    data: str
    """the beginning of the batches' names, such as cifar10"""
    unit: str = ""
    """percent or fraction of accuracies, else empty"""
    notes: list[str] = field(default_factory=list)

    @cached_property
    def sizes(self) -> dict[str, Floats]:
        """Parameters and multiply-accumulates, those that all networks have."""
        found = {}
        for name in SIZES:
            for row in self.scores.get(name, {}).values():
                if all(score.ok for score in row):
                    found[name] = np.array([score.value for score in row])
        return found

    def has(self, objective: Objective) -> bool:
        """Returns True if all of its proxies were run on these networks."""
        return all(proxy.text in self.scores for proxy in objective.proxies)

    def merits(self, objective: Objective) -> Repeats | None:
        """Returns the merits of all networks, higher is better, by repeat; None if a proxy was not run here."""
        if not self.has(objective):
            return None
        repeats = [self.scores[proxy.text] for proxy in objective.proxies]
        drawn = [by for proxy, by in zip(objective.proxies, repeats, strict=True) if proxy.text not in SIZES] or repeats
        shared = [repeat for repeat in drawn[0] if all(repeat in by for by in drawn[1:])]
        first = [next(iter(by.values())) for by in repeats]
        rows = [[by.get(repeat, one) for by, one in zip(repeats, first, strict=True)] for repeat in shared]
        return [_merits(objective, row) for row in rows or [first]]


def _merits(objective: Objective, members: Sequence[Sequence[Score]]) -> list[Score]:
    """Merits among the networks that all proxies were run on: what was not run is no reason for an alternative."""
    texts = [proxy.text for proxy in objective.proxies]
    networks = [dict(zip(texts, row, strict=True)) for row in zip(*members, strict=True)]
    ran = [i for i, one in enumerate(networks) if all(score.why != NOT_RUN for score in one.values())]
    found = [Score.failed(NOT_RUN)] * len(networks)
    for i, merit in zip(ran, objective.merits([networks[i] for i in ran]), strict=True):
        found[i] = Score.degenerate(objective.why_not(networks[i])) if merit is None else Score(merit)
    return found


def boards_of(targets: Sequence[Target], stored: StoredScores, networks: int, seed: int = 0) -> list[Board]:
    """Returns a board for each target; UserError if none has networks with scores, or one that is not optional."""
    there = [target for target in targets if not target.optional or set(target.spaces) & set(stored.spaces)]
    targets = there or targets
    tables = {path: AccuracyTable.read(path) for path in dict.fromkeys(target.path for target in targets)}
    boards = [_board(target, tables[target.path], stored, networks, seed) for target in targets]
    names = Counter(board.name for board in boards)
    twice = [board.name for board in boards if names[board.name] > 1]
    return [replace(one, name=f"{one.name} {one.target.path.name}") if one.name in twice else one for one in boards]


def _board(target: Target, table: AccuracyTable, stored: StoredScores, networks: int, seed: int) -> Board:
    space = next((name for name in target.spaces if name in stored.spaces), None)
    if space is None:
        hint = near_miss(target.spaces[0], stored.spaces)
        raise UserError(
            f"The stored scores have none of the space '{target.spaces[0]}'.{hint} They are of "
            f"{', '.join(stored.spaces) or 'no space'}."
        )
    truths, unknown = _truths(target, table)
    drawn = {name: _untrained(by) for name, by in stored.of(space).items()}
    scores = {name: by for name, by in drawn.items() if by}
    data = _data_of(target, scores)
    of_data = _joined({name: _on(by, data) for name, by in scores.items()})
    texts = _texts(list(truths), {arch for by in of_data.values() for one in by.values() for arch in one}, space)
    known = [arch for arch in truths if arch in texts]
    if len(known) < LEAST:
        raise DataError(
            f"Only {len(known)} networks of {table.source} have stored scores of {space}; {LEAST} are needed."
        )
    chosen = _most_scored(known, texts, of_data, networks, seed)
    notes = [*table.notes, *([f"{unknown:,} networks without {target.column} are left out."] if unknown else [])]
    notes.append(f"{len(chosen):,} of {len(known):,} networks with scores, of {len(truths):,} in the table.")
    kept = {name: rows for name, by in of_data.items() if (rows := _rows([texts[arch] for arch in chosen], by))}
    repeats = {repeat for rows in kept.values() for repeat in rows}
    if repeats and all(batch.endswith(TF32) for batch, _ in repeats):
        notes.append(f"Scores with TF32, of {len({origin for _, origin in repeats})} draw(s) of weights and batch.")
    kept = _with_sizes(kept, table, chosen)
    truth = np.array([truths[arch] for arch in chosen])
    unit = unit_of(target.column, truth, table.source) if target.higher else ""
    return Board(f"{space} {target.column}", target, space, chosen, truth, kept, data, unit, notes)


def _truths(target: Target, table: AccuracyTable) -> tuple[dict[str, float], int]:
    """Returns the finite numbers of a column by architecture, more being better, and how many are missing."""
    sign = 1.0 if target.higher else -1.0
    values = {arch: sign * as_number(cell) for arch, cell in zip(table.archs, table.cells(target.column), strict=True)}
    finite = {arch: value for arch, value in values.items() if math.isfinite(value)}
    return finite, len(values) - len(finite)


def _prefix(repeat: Repeat) -> str:
    return repeat[0].partition("-")[0]


def _data_of(target: Target, scores: Mapping[str, ByRepeat]) -> str:
    """Returns the target's own data if networks were scored on them, else those with the most scores."""
    counts: dict[str, int] = {}
    for by in scores.values():
        for repeat, one in by.items():
            counts[_prefix(repeat)] = counts.get(_prefix(repeat), 0) + len(one)
    own = described(target.column).dataset
    return own if own in counts else max(counts, key=lambda data: counts[data])


def _untrained(scores: ByRepeat) -> ByRepeat:
    """Returns the repeats whose weights were drawn by a scheme and a seed, without those that were trained first."""
    return {repeat: one for repeat, one in scores.items() if DRAWN.fullmatch(repeat[1])}


def _on(scores: ByRepeat, data: str) -> ByRepeat:
    """Returns a proxy's scores on some data, or all if there are none; those with TF32 only if there are no others."""
    own = {repeat: one for repeat, one in scores.items() if _prefix(repeat) == data} or scores
    return {repeat: one for repeat, one in own.items() if not repeat[0].endswith(TF32)} or own


def _joined(scores: dict[str, ByRepeat]) -> dict[str, ByRepeat]:
    """Joins repeats of different networks, such as models with inputs of different sizes, into one."""
    archs: dict[Repeat, set[str]] = {}
    for by in scores.values():
        for repeat, one in by.items():
            archs.setdefault(repeat, set()).update(one)
    into: dict[Repeat, Repeat] = {}
    for repeat in sorted(archs, key=lambda repeat: (-len(archs[repeat]), repeat)):
        same = (first for first in set(into.values()) if first[1] == repeat[1] and not archs[first] & archs[repeat])
        into[repeat] = first = min(same, default=repeat)
        archs[first] = archs[first] | archs[repeat]
    joined: dict[str, ByRepeat] = {name: {} for name in scores}
    for name, by in scores.items():
        for repeat, one in by.items():
            joined[name].setdefault(into[repeat], {}).update(one)
    return joined


def _texts(truths: Sequence[str], scored: set[str], space: str) -> dict[str, str]:
    """Returns the text in the stored scores of each architecture of a table that has any.

    Only where texts differ is the space loaded, to read them.
    """
    if all(arch in scored for arch in truths) or len(scored.intersection(truths)) == len(scored):
        return {arch: arch for arch in truths if arch in scored}
    if space not in spaces:
        return {arch: arch for arch in truths if arch in scored}
    of_space = spaces[space]
    by_text = {of_space.text(of_space.parse(arch)): arch for arch in scored}
    written = {arch: of_space.text(of_space.parse(arch)) for arch in truths}
    return {arch: by_text[text] for arch, text in written.items() if text in by_text}


def _most_scored(
    known: Sequence[str], texts: Mapping[str, str], scores: Mapping[str, ByRepeat], networks: int, seed: int
) -> list[str]:
    """Returns the architectures with scores by the most proxies, at random among equals."""
    parts = [set().union(*by.values()) for by in scores.values()]
    counts = {arch: sum(texts[arch] in one for one in parts) for arch in known}
    drawn = np.random.default_rng(seed).permutation(len(known))
    order = sorted(drawn, key=lambda place: -counts[known[place]])
    return [known[place] for place in sorted(order[:networks])]


def _rows(texts: Sequence[str], scores: ByRepeat) -> dict[Repeat, list[Score]]:
    """Returns the scores of these networks in each repeat that covers enough of them."""
    lacks = Score.failed(NOT_RUN)
    covering = {
        repeat: one for repeat, one in scores.items() if sum(text in one for text in texts) >= COVERED * len(texts)
    }
    return {repeat: [one.get(text, lacks) for text in texts] for repeat, one in covering.items()}


def _with_sizes(
    scores: dict[str, dict[Repeat, list[Score]]], table: AccuracyTable, archs: Sequence[str]
) -> dict[str, dict[Repeat, list[Score]]]:
    """Adds parameters and FLOPs of the table if they were not stored."""
    found = dict(scores)
    rows = {arch: row for row, arch in enumerate(table.archs)}
    for column in table.columns:
        quantity = described(column).quantity
        if quantity in SIZES and quantity not in found:
            cells = table.cells(column)
            values = [as_number(cells[rows[arch]]) for arch in archs]
            if all(map(math.isfinite, values)):
                found[quantity] = {(table.source, "table"): [Score(value) for value in values]}
    return found
