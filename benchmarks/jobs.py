"""The choices of `auto` on tables of trained networks: under a limit, and for a device.

    python benchmarks/jobs.py ../shared/data --markdown docs/jobs.md

Each seed draws half of a table's networks with stored scores. Under a limit, a method names one network: its accuracy.
For a device, it names the networks of its front of score and speed: the area between their accuracies and speeds and
the worst of the table, with both scaled to 0 to 1 (hypervolume), next to that of as many random networks. Differences
are of the same seeds, with 95 % intervals; "ahead" and "behind" are those whose interval leaves out 0.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from statistics import mean
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from epochzero.evaluate.leaderboard.boards import Board, boards_of, targets_of
from epochzero.evaluate.leaderboard.stored import read_stored
from epochzero.objectives.objective import parse_objective
from epochzero.stats.bootstrap import Floats
from epochzero.tables import AccuracyTable

SEEDS = 10
NAMES = ("auto", "dextr", "params", "flops")
DEVICES = {
    "nb201": [f"cifar10_{name}_latency" for name in ("edgegpu", "raspi4", "edgetpu", "pixel3", "eyeriss", "fpga")],
    "mnasnet": [f"throughput_{name}" for name in ("a100", "3090", "tpuv2", "tpuv3", "zcu102", "vck190")],
}
"""columns of the speed; latencies are better if lower"""
FILES = {"nb201": "hwnasbench_nb201.csv.gz", "mnasnet": "accelnb_mnasnet.csv.gz"}
"""tables with these columns"""


class Limit(NamedTuple):
    """Networks that may be chosen."""

    space: str
    about: str
    fits: Callable[[Floats, Floats], np.ndarray]
    """of parameters and speeds on the first device"""


def half(speed: Floats) -> Floats:
    """1 at half of the largest speed."""
    return 2 * speed / np.nanmax(speed)


LIMITS = (
    Limit("nb201", "under 300,000 parameters", lambda params, _: params < 3e5),
    Limit("nb201", "under 1,000,000 parameters", lambda params, _: params < 1e6),
    Limit("mnasnet", "at least half of the largest throughput on an A100", lambda _, speed: half(speed) >= 1),
    Limit("mnasnet", "at most half of the largest throughput on an A100", lambda _, speed: half(speed) <= 1),
)


def merits(board: Board, name: str, of: Sequence[int]) -> Floats:
    """Higher is better; -inf for a network without a score."""
    objective = parse_objective(name)
    first = {proxy.text: next(iter(board.scores[proxy.text].values())) for proxy in objective.proxies}
    values = objective.merits([{text: row[i] for text, row in first.items()} for i in of])
    return np.array([-np.inf if value is None else value for value in values])


def speeds(board: Board, folder: Path, column: str) -> Floats:
    """Higher is better; nan for what was not measured."""
    table = AccuracyTable.read(folder / FILES[board.space])
    known = dict(zip(table.archs, table.cells(column), strict=True))
    values = np.array([float(known[arch] or "nan") for arch in board.archs])
    values[~(values > 0)] = np.nan
    return 1 / values if column.endswith("latency") else values


def front(merit: Floats, speed: Floats) -> list[int]:
    """The networks that no other beats in both."""
    order = sorted(range(len(merit)), key=lambda i: (-merit[i], -speed[i]))
    chosen: list[int] = []
    for i in order:
        if not chosen or speed[i] > speed[chosen[-1]]:
            chosen.append(i)
    return chosen


def area(accuracy: Floats, speed: Floats, chosen: Sequence[int]) -> float:
    """The hypervolume of these networks, with accuracy and log speed scaled to 0 to 1."""
    y, x = ((v - v.min()) / (v.max() - v.min()) for v in (accuracy, np.log(speed)))
    total, reached = 0.0, 0.0
    for i in sorted(chosen, key=lambda i: -y[i]):
        total += y[i] * max(0.0, x[i] - reached)
        reached = max(reached, x[i])
    return float(total)


def halves(count: int) -> list[list[int]]:
    return [sorted(Random(seed).sample(range(count), count // 2)) for seed in range(SEEDS)]


def margin(values: Sequence[float]) -> float:
    """Half of the 95 % interval of the mean."""
    return float(student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5)


def interval(values: Sequence[float]) -> str:
    return f"{mean(values):.3f} ± {margin(values):.3f}"


def verdict(differences: Sequence[float]) -> str:
    middle, wide = mean(differences), margin(differences)
    return "ahead" if middle > wide else "behind" if middle < -wide else "even"


def limits(boards: dict[str, Board], folder: Path) -> list[str]:
    names = [name for name in NAMES if name != "flops"]
    lines = [
        f"| job | best | {' | '.join(names)} (largest) | random | auto - params | |",
        "|---" * (len(names) + 5) + "|",
    ]
    for limit in LIMITS:
        board = boards[limit.space]
        fits = limit.fits(board.sizes["params"], speeds(board, folder, DEVICES[limit.space][0]))
        found: dict[str, list[float]] = {name: [] for name in ("best", *names, "random")}
        for drawn in halves(len(board.archs)):
            of = [i for i in drawn if fits[i]]
            truth = board.truth[of]
            found["best"].append(truth.max())
            found["random"].append(truth.mean())
            for name in names:
                found[name].append(truth[merits(board, name, of).argmax()])
        ahead = [a - b for a, b in zip(found["auto"], found["params"], strict=True)]
        cells = [f"{mean(values):.2f}" for values in found.values()]
        lines.append(f"| {limit.space}, {limit.about} | {' | '.join(cells)} | {interval(ahead)} | {verdict(ahead)} |")
    return lines


def fronts(boards: dict[str, Board], folder: Path) -> list[str]:
    others = ("random", "dextr", "flops")
    against = " | | ".join(f"auto - {other}" for other in others)
    lines = [f"| device | {' | '.join(NAMES)} | random | {against} | |", "|---" * (len(NAMES) + 8) + "|"]
    for space, columns in DEVICES.items():
        board = boards[space]
        for column in columns:
            speed = speeds(board, folder, column)
            found: dict[str, list[float]] = {name: [] for name in (*NAMES, "random")}
            measured = np.flatnonzero(np.isfinite(speed))
            for seed, drawn in enumerate(halves(len(measured))):
                of = [int(i) for i in measured[drawn]]
                truth, fast, rng = board.truth[of], speed[of], Random(seed)
                for name in NAMES:
                    chosen = front(merits(board, name, of), fast)
                    found[name].append(area(truth, fast, chosen))
                    if name == "auto":
                        draws = [rng.sample(range(len(of)), len(chosen)) for _ in range(20)]
                found["random"].append(mean(area(truth, fast, draw) for draw in draws))
            cells = [f"{mean(values):.3f}" for values in found.values()]
            for other in others:
                ahead = [a - b for a, b in zip(found["auto"], found[other], strict=True)]
                cells += [interval(ahead), verdict(ahead)]
            lines.append(f"| {space} {column} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with nb201.csv.gz, accelnb_mnasnet.csv.gz, hwnasbench_nb201.csv.gz")
    parser.add_argument("--scores", type=Path, default=Path("docs/data"))
    parser.add_argument("--markdown", type=Path)
    asked = parser.parse_args()
    columns = (("nb201", "nb201", "cifar10_test"), ("mnasnet", "accelnb_mnasnet", "imagenet_top1"))
    targets = targets_of([f"{space}={asked.folder / file}.csv.gz:{column}" for space, file, column in columns])
    boards = {board.space: board for board in boards_of(targets, read_stored([asked.scores]), networks=400)}
    text = "\n".join(
        [
            "# Choices of `auto`",
            "",
            *(__doc__ or "").split("\n\n", 2)[2].strip().split("\n"),
            "",
            *(f"{board.space}: {len(board.archs)} networks with stored scores." for board in boards.values()),
            "",
            "## One network under a limit (accuracy, percent)",
            "",
            *limits(boards, asked.folder),
            "",
            "## Fronts for a device (hypervolume)",
            "",
            *fronts(boards, asked.folder),
            "",
        ]
    )
    print(text)
    if asked.markdown:
        asked.markdown.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
