"""The worth of the choice of `auto` on a space that it has not seen: the same choice, made without each space.

    python benchmarks/choice.py ../shared/data --markdown docs/choice.md

A fixed procedure chooses members from the stored scores by the accuracies of all other spaces, and is measured on the
one left out. It tries every set with *one of each kind*: size (parameters and FLOPs in equal parts), depth,
expressivity (how rich the features are) and trainability (how signals and gradients pass). The set with the largest
mean + worst Spearman correlation wins, or that with the largest mean (*by mean*). Members are combined as in `auto:3`:
size / 3 counts by its value, the others by their ranks from 0 to 1. Or, with equal weights, as in `auto:2` by their
agreement (mean rank less its standard error), or as in `auto:1` by the sum of normal scores. FLOPs take the place of a
score that does not apply to a table. For comparison, by agreement: the same with any three sizes to choose from,
*any 4*
scores of which no two correlate by more than .9 in the mean, and one score. All sets have at most 3 forward passes.
While choosing, a network that lacks a score is the worst, and one repeat counts; figures are means over all repeats.

What no space was left out of: the kinds and what belongs to them, the criterion (it was fixed before most of these
scores were there, for another form of the procedure), and the three forms, which were found on these tables. That of
`auto:3` is one of some eighty: other factors of the standard error, weights of size that grow with its spread, ranks
given size, a fifth member. Most were within .02 of each other; it is the plainest of those with a worst above .40. What
its 3 is worth if chosen without the space is shown, too: *size / the best elsewhere*.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from epochzero.engine import parse
from epochzero.engine.passes import merged
from epochzero.engine.proxy import Proxy, split_list
from epochzero.engine.reads import NEED_FORWARD
from epochzero.errors import UserError
from epochzero.evaluate.leaderboard.boards import Board, Repeats, boards_of, targets_of
from epochzero.evaluate.leaderboard.leaderboard import PUBLISHED
from epochzero.evaluate.leaderboard.page import markdown_table
from epochzero.evaluate.leaderboard.standings import Contestant, Row, Rules, proxy_contestant, standings
from epochzero.evaluate.leaderboard.stored import read_stored
from epochzero.evaluate.results import interval
from epochzero.objectives.auto import NAME, VERSIONS, Member, Version
from epochzero.objectives.objective import Objective, parse_objective
from epochzero.objectives.ranks import NEARLY_ALL, joined
from epochzero.stats.bootstrap import Estimate, Floats, percentile_interval
from epochzero.stats.text import short
from epochzero.study.methods.guided import normal_scores

PASSES = 3
"""most forward passes of a set"""
ALIKE = 0.9
"""largest mean correlation of two members of *any 4*"""
FLOPS, SIZE = "flops", "size"
HINDSIGHT = "hindsight"
FIRST = "az_trainability(samples=16)"
KINDS = (
    (SIZE, (SIZE,)),
    ("depth", ("depth", "layers")),
    ("expressivity", ("near", "naswot", "zen", "meco", "az_expressivity", "az_progressivity", "activations")),
    ("trainability", (FIRST, "grad_norm", "snip", "fisher", "synflow", "l2_norm", "zico", "jacov", "plain")),
)
SIZES = (SIZE, "params", FLOPS)
OTHERS = ("ninapro_nb360", "darcy_nb360", "autoformer_tiny cifar100")
"""ends of the names of tables that are not among the nine of the goal"""
CHUNK = 400
"""sets that are compared at once"""
Members = tuple[str, ...]


@dataclass(frozen=True)
class Combination(Objective):
    """An objective like `auto`, with members of its own."""

    own: Version | None = None

    @property
    def made_of(self) -> Version | None:
        return self.own

    @staticmethod
    def of(members: Members, method: str) -> Combination:
        """`method` is one of `Variant`."""
        unit = method.partition(BY_VALUE)[2]
        scores = [tuple(dict.fromkeys((name, FLOPS))) for name in members]
        if unit and members[0] == SIZE:
            first = Member(1 / float(unit), scores[0], by_value=True)
            own = Version((first, *(Member(1.0, one) for one in scores[1:])), "shares")
        else:
            own = Version(tuple(Member(1.0, one) for one in scores), "shares" if unit else method)
        return Combination(tuple(map(parse, own.scores)), own.method, own=own)


class Variant(NamedTuple):
    """A form of the procedure."""

    sets: str
    method: str = "agreement"
    """of a combination, or "by value, 3": the first member, a size, divided by 3, and the shares of the others"""
    by_space: bool = False
    """true: means of spaces count, not tables"""
    worst: float = 1.0
    """weight of the worst beside the mean"""

    @property
    def name(self) -> str:
        form = NAMES.get(self.method, f", size / {self.method.removeprefix(BY_VALUE)}")
        form = "" if self.sets in (ANY, ONE) and self.method == "agreement" else form
        return f"{self.sets}{form}{', by space' * self.by_space}{', by mean' * (self.worst == 0)}"


BY_VALUE = "by value, "
NAMED = f"{BY_VALUE}3"
NAMES = {"normal_rank": ", normal scores", "agreement": ", agreement", NAMED: ""}
"""words that the forms add to the name of a variant"""
UNITS = ("1", "1.5", "2", "2.5", "4", "5")
"""sizes that count as much as the way from the last place to the first, beside that of NAMED"""
UNIT_LEFT_OUT = "members of all, size / the best elsewhere"
KIND, ANY_SIZE, ANY, ONE = "one of each kind", "one of each kind, any size", "any 4", "one score"
VARIANTS = (
    Variant(KIND, NAMED),
    Variant(KIND, NAMED, worst=0.0),
    Variant(KIND),
    Variant(KIND, "normal_rank"),
    Variant(ANY),
    Variant(ONE),
    *(
        Variant(KIND, method, *by)
        for method in (NAMED, "agreement", "normal_rank")
        for by in ((True,), (False, 0.0), (True, 0.0))
        if (method, by) != (NAMED, (False, 0.0))
    ),
    *(Variant(KIND, f"{BY_VALUE}{unit}") for unit in UNITS),
    *(Variant(ANY_SIZE, method) for method in ("agreement", "normal_rank")),
    Variant(ANY, "normal_rank"),
    *(Variant(ANY, "agreement", *by) for by in ((True,), (False, 0.0), (True, 0.0))),
)
SHOWN = 6
"""variants in the large table, the first ones"""


class Procedure:
    """The choice of members; every set's correlation with every table is computed once."""

    def __init__(self, boards: Sequence[Board], proxies: Sequence[Proxy]) -> None:
        self.names = [one.text for one in proxies]
        self.spaces = [board.space for board in boards]
        self.columns = [np.array([column(board, one) for one in proxies]) for board in boards]  # [K, n] each
        self.values = [size_values(board) if SIZE in self.names else np.empty(0) for board in boards]  # [n] each
        self.truths = [rankdata(board.truth) for board in boards]
        needs = [
            {run for run, reads in merged(one.needs).items() if {n for n, _ in reads} & NEED_FORWARD} for one in proxies
        ]
        every = list(set().union(*needs))
        self.runs = np.array([[run in own for run in every] for own in needs]).reshape(len(needs), -1)  # [K, passes]
        self._known: dict[tuple[str, str], tuple[np.ndarray, Floats]] = {}

    def sets(self, name: str) -> np.ndarray:
        """The sets of members to choose from [M, size]."""
        there = {one: k for k, one in enumerate(self.names)}
        if name == ONE:
            return np.arange(len(there))[:, None]
        found: np.ndarray
        if name == ANY:
            found = np.array(list(combinations(range(len(there)), min(4, len(there)))))
        else:
            kinds = [(SIZES if kind == SIZE and name == ANY_SIZE else scores) for kind, scores in KINDS]
            found = np.array(list(product(*filter(None, ([there[s] for s in own if s in there] for own in kinds)))))
        return np.asarray(found[self.runs[found].any(1).sum(1) <= PASSES])

    def known(self, sets: str, method: str) -> tuple[np.ndarray, Floats]:
        """The sets, and the correlation of each with accuracy [boards, M]."""
        if (sets, method) not in self._known:
            found = self.sets(sets)
            rhos = [
                np.concatenate(
                    [self._rhos(z, truth, own, found[at : at + CHUNK], method) for at in range(0, len(found), CHUNK)]
                )
                for z, truth, own in zip(self.columns, self.truths, self.values, strict=True)
            ]
            self._known[sets, method] = found, np.array(rhos)
        return self._known[sets, method]

    def _rhos(self, columns: Floats, truth: Floats, values: Floats, sets: np.ndarray, method: str) -> Floats:
        """Spearman's correlation of each set [M]."""
        parts = columns if method == "normal_rank" else rankdata(columns, axis=1) / columns.shape[1]
        method, _, unit = method.partition(BY_VALUE)
        if unit and SIZE in self.names:
            parts[self.names.index(SIZE)] = values / float(unit)
        method = method or "shares"
        size, shape = sets.shape[1], (len(sets), columns.shape[1])
        merits = joined(method, np.moveaxis(parts[sets], 1, 0).reshape(size, -1), np.ones(size)).reshape(shape)
        ranks = rankdata(merits, axis=1)
        ranks, truth = ranks - ranks.mean(1, keepdims=True), truth - truth.mean()
        return np.asarray(ranks @ truth / np.maximum(np.sqrt((ranks**2).sum(1) * (truth @ truth)), 1e-9))

    def best_unit(self, members: Members, without: str) -> str:
        """Returns the form of `auto:3` that is best with these members on the tables of all spaces but this one."""
        kept = [i for i, space in enumerate(self.spaces) if space != without]
        merits = {}
        for form in (NAMED, *(f"{BY_VALUE}{unit}" for unit in UNITS)):
            found, rhos = self.known(KIND, form)
            (at,) = np.flatnonzero((found == [self.names.index(name) for name in members]).all(1))
            merits[form] = self._merit(rhos[kept][:, [at]], [], Variant(KIND, form))[0]
        return max(merits, key=lambda form: merits[form])

    def best(self, variant: Variant, without: str) -> Members:
        """Returns the best set by the tables of all spaces but this one."""
        kept = [i for i, space in enumerate(self.spaces) if space != without]
        found, rhos = self.known(variant.sets, variant.method)
        merit = self._merit(rhos[kept], [self.spaces[i] for i in kept], variant)
        if variant.sets == ANY:
            alike = np.mean([np.corrcoef(self.columns[i]) for i in kept], axis=0)
            unlike = np.abs(alike) <= ALIKE + np.eye(len(alike))
            merit[~unlike[found[:, :, None], found[:, None, :]].all((1, 2))] = -np.inf
        return tuple(self.names[k] for k in found[merit.argmax()])

    def _merit(self, rows: Floats, spaces: Sequence[str], variant: Variant) -> Floats:
        """Mean and worst of each set [M]."""
        if variant.by_space:
            of = np.array(spaces)
            rows = np.array([rows[of == space].mean(0) for space in dict.fromkeys(spaces)])
        return np.asarray(np.round(rows.mean(0) + variant.worst * rows.min(0), 9))


def column(board: Board, proxy: Proxy) -> Floats:
    """Normal scores of a proxy's merits with variance 1; those of FLOPs where it does not apply."""
    rows = board.merits(Objective((proxy,)))
    assert rows is not None
    there = [score.value for score in rows[0] if score.ok]
    if proxy.text != FLOPS and (len(there) < NEARLY_ALL * len(rows[0]) or len(set(there)) < 2):
        return column(board, parse(FLOPS))
    return unit(np.array([score.value if score.ok else -np.inf for score in rows[0]]))


def size_values(board: Board) -> Floats:
    """The sizes of a board's networks less their mean; a network without one has the smallest."""
    rows = board.merits(Objective((parse(SIZE),)))
    assert rows is not None
    values = np.array([score.value if score.ok else np.nan for score in rows[0]])
    return np.asarray(np.nan_to_num(values, nan=np.nanmin(values)) - np.nanmean(values))


def unit(values: Floats) -> Floats:
    scores = normal_scores(values)
    return np.asarray(scores / (scores.std() or 1.0))


def candidates(boards: Sequence[Board], names: str | None) -> list[Proxy]:
    """Those of the named proxies, or of all stored ones, that need few ordinary passes and were run on every table."""
    found = []
    for name in split_list(names) if names else dict.fromkeys(name for board in boards for name in board.scores):
        try:
            proxy = parse(name)
        except UserError:
            continue
        if proxy.quick and all(name in board.scores for board in boards):
            found.append(proxy)
    if not found or len({board.space for board in boards}) < 2:
        raise UserError("A choice needs tables of two spaces, and proxies that were run on all of them.")
    return found


def contestants(
    boards: Sequence[Board], procedure: Procedure
) -> tuple[dict[str, Contestant], dict[tuple[str, str], Members]]:
    """Returns who is compared, and the members by variant and space left out; by "hindsight" those of all spaces."""
    found: dict[str, Contestant] = {}
    chosen: dict[tuple[str, str], Members] = {}
    for variant in VARIANTS:
        for space in (*dict.fromkeys(board.space for board in boards), HINDSIGHT):
            chosen[variant.name, space] = procedure.best(variant, space)
        found[variant.name] = left_out(variant, chosen)
        found[f"{variant.name}, hindsight"] = fixed(Combination.of(chosen[variant.name, HINDSIGHT], variant.method))
    members = chosen[KIND, HINDSIGHT]
    forms = {space: procedure.best_unit(members, space) for space in dict.fromkeys(board.space for board in boards)}
    for space, form in forms.items():
        chosen[UNIT_LEFT_OUT, space] = (f"size / {form.removeprefix(BY_VALUE)}", *members[1:])

    def by_unit(board: Board) -> Repeats | None:
        return board.merits(Combination.of(members, forms[board.space]))

    found[UNIT_LEFT_OUT] = by_unit
    names = [*PUBLISHED, *SIZES, *procedure.names]
    return found | {one.text: fixed(one) for one in map(parse_objective, names)}, chosen


def fixed(objective: Objective) -> Contestant:
    return proxy_contestant(objective)


def left_out(variant: Variant, chosen: Mapping[tuple[str, str], Members]) -> Contestant:
    def merits(board: Board) -> Repeats | None:
        return board.merits(Combination.of(chosen[variant.name, board.space], variant.method))

    return merits


def page(
    boards: Sequence[Board],
    rows: Sequence[Row],
    nine: Sequence[Row],
    chosen: Mapping[tuple[str, str], Members],
    about: str,
) -> str:
    by = {row.name: row for row in rows}
    variants = [variant.name for variant in VARIANTS]
    autos = [name for name in by if name.startswith("auto:")]
    shown = [*variants[:SHOWN], *sorted(autos), FLOPS]
    figures = [
        ["", "networks", *variants[:SHOWN], *(f"`{name}`" for name in shown[SHOWN:])],
        *([board.name, f"{len(board.archs):,}", *(_cell(by[name], board.name) for name in shown)] for board in boards),
        ["**mean**", "", *(interval(by[name].mean) for name in shown)],
        ["**worst**", "", *(interval(by[name].worst) for name in shown)],
        ["mean of spaces", "", *(short(by[name].by_space) for name in shown)],
        ["worst difference from FLOPs", "", *(short(by[name].versus_flops or 0.0) for name in shown)],
        ["mean difference from FLOPs", "", *(interval(difference(by[name], by[FLOPS])) for name in shown)],
    ]
    every = [
        [name, *(short(figure) for of in (name, f"{name}, {HINDSIGHT}") for figure in _summary(by[of]))]
        for name in variants
    ]
    heads = ["mean", "worst", "mean of spaces"]
    every_heads = ["members", *heads, *(f"{head}, chosen on all" for head in heads)]
    goal_heads = ["", "mean", "worst", "worst on", "worst difference from FLOPs", "mean difference from FLOPs"]
    flops = next(row for row in nine if row.name == FLOPS)
    goal = [
        [
            row.name if row.name in {name for name, _ in chosen} or row.name.endswith(HINDSIGHT) else f"`{row.name}`",
            *(interval(row.mean), interval(row.worst), row.worst_on),
            *(short(row.versus_flops or 0.0), interval(difference(row, flops))),
        ]
        for row in nine
    ]
    parts = [
        "# The choice of `auto`, without each space",
        (__doc__ or "").split("\n\n", 2)[2].strip(),
        about,
        f"## {len(boards)} tables of {len({board.space for board in boards})} spaces",
        "Spearman with 95 % intervals by bootstrap over networks and repeats, as on [the leaderboard]"
        "(leaderboard.md).\nIntervals of differences are of the same resamples.",
        markdown_table(figures[0], figures[1:]),
        f"## {len(nine[0].results)} tables",
        "The same without NAS-Bench-360 and AutoFormer's CIFAR-100: the tables of the goal of `auto` (mean at\n"
        "least .70, worst at least .40, never more than .05 below FLOPs). *hindsight*: members chosen on all tables.",
        markdown_table(goal_heads, goal),
        "## All forms of the procedure",
        "*by mean*: the largest mean wins, whatever the worst; *by space*: means and worst are those of spaces, which\n"
        "count once each. *chosen on all*: the same procedure with every accuracy known, which is no honest figure.",
        markdown_table(every_heads, every),
        "## Chosen",
        "\n".join(_choices(chosen, [*variants, UNIT_LEFT_OUT])),
    ]
    return "\n\n".join(parts) + "\n"


def further(boards: Sequence[Board], known: Sequence[Board], rules: Rules) -> str:
    """The section on tables of which nothing is chosen, and on the networks of known ones that have all scores."""
    names = [*(f"{NAME}:{number}" for number in sorted(VERSIONS)), FLOPS, SIZE, "near", FIRST]
    whole = [with_all_scores(board, parse_objective(NAME)) for board in known]
    boards = [*boards, *(board for board in whole if board is not None)]
    found = {row.name: row for row in standings(boards, {name: fixed(parse_objective(name)) for name in names}, rules)}
    rows = [
        [
            board.name,
            f"{len(board.archs):,}",
            *(_cell(found[name], board.name) if name in found else "" for name in names),
        ]
        for board in boards
    ]
    parts = [
        "\n## Further tables",
        "The procedure chooses nothing by these. `auto:3` was not fitted to them, but frozen after a look at them.\n"
        "The last ones are networks of tables above: those for which all members of the newest `auto` have a score,\n"
        "where some lack one and FLOPs stand in for it above.",
        markdown_table(["", "networks", *(f"`{name}`" for name in names)], rows),
    ]
    return "\n\n".join(parts) + "\n"


def with_all_scores(board: Board, objective: Objective) -> Board | None:
    """Returns the board of the networks that every member has a score for; None where a member gives way to none."""
    rows = [row for proxy in objective.proxies for row in board.scores.get(proxy.text, {}).values()]
    kept = [i for i in range(len(board.archs)) if all(row[i].ok for row in rows)]
    if all(np.mean([score.ok for score in row]) >= NEARLY_ALL for row in rows):
        return None
    scores = {name: {repeat: [row[i] for i in kept] for repeat, row in by.items()} for name, by in board.scores.items()}
    archs = [board.archs[i] for i in kept]
    return replace(board, name=f"{board.name}, all scores", archs=archs, truth=board.truth[kept], scores=scores)


def difference(one: Row, other: Row) -> Estimate:
    """The mean difference of two rows over their tables, in the same resamples."""
    pairs = [(one.results[name], other.results[name]) for name in one.results]
    value = float(np.mean([a.rho - b.rho for a, b in pairs]))
    draws = np.mean([a.draws - b.draws for a, b in pairs], axis=0)
    return Estimate(value, *percentile_interval(value, draws, len(pairs), 0.95), len(pairs))


def _summary(row: Row) -> tuple[float, float, float]:
    return row.mean.value, row.worst.value, row.by_space


def _cell(row: Row, board: str) -> str:
    result = row.results.get(board)
    estimate = result and result.figures["spearman"].estimate
    return interval(estimate) if estimate else "no score"


def _choices(chosen: Mapping[tuple[str, str], Members], names: Sequence[str]) -> Iterator[str]:
    """The sets of each form, and the spaces without which they were chosen."""
    for name in names:
        spaces: dict[Members, list[str]] = {}
        for (variant, space), members in chosen.items():
            if variant == name:
                spaces.setdefault(members, []).append("on all" if space == HINDSIGHT else f"without {space}")
        told = (f"{', '.join(f'`{one}`' for one in members)} ({'; '.join(of)})" for members, of in spaces.items())
        yield f"- {name}: {'; '.join(told)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", help="a folder of accuracy tables, or SPACE=FILE:COLUMN")
    parser.add_argument("--scores", type=Path, nargs="+", default=[Path("docs/data")])
    parser.add_argument("--candidates", help="proxies, separated by commas; default: all stored ones")
    parser.add_argument("--further", nargs="*", default=[], help="tables of which nothing is chosen, SPACE=FILE:COLUMN")
    parser.add_argument("--networks", type=int, default=400, help="of each table, at most")
    parser.add_argument("--resamples", type=int, default=200)
    parser.add_argument("--markdown", type=Path, help="page to write")
    asked = parser.parse_args()
    boards = boards_of(targets_of(asked.tables), read_stored(asked.scores), asked.networks)
    proxies = candidates(boards, asked.candidates)
    compared, chosen = contestants(boards, Procedure(boards, proxies))
    rules = Rules(asked.resamples, full=False)
    rows = [row for row in standings(boards, compared, rules) if len(row.results) == len(boards)]
    kept = [board for board in boards if not board.name.endswith(OTHERS)] or boards
    nine = [row for row in standings(kept, compared, rules) if len(row.results) == len(kept)]
    nine = [row for row in nine if row.name not in {one.name for one in VARIANTS[SHOWN:]}]
    nine = [row for row in nine if row.name not in {f"{one.name}, {HINDSIGHT}" for one in VARIANTS[SHOWN:]}]
    words = [word if word.startswith("docs/") else re.sub(r"[^=]*/", "", word) for word in sys.argv[1:]]
    command = f"python benchmarks/choice.py {shlex.join(words)}"
    listed = ", ".join(f"`{one.text}`" for one in proxies)
    text = page(boards, rows, nine, chosen, f"Candidates: {listed}.\n\n```text\n{command}\n```")
    if asked.further:
        text += further(boards_of(targets_of(asked.further), read_stored(asked.scores), asked.networks), boards, rules)
    print(text)
    if asked.markdown:
        asked.markdown.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
