"""Compares a network's scores one at a time with its scores in populations of several sizes.

    python benchmarks/equality.py --space nb201 --networks 64 --populations 1,7,64 --proxies all --batch-size 64 \
        --data cifar10.npz --device cuda --budget 240 --out equality.json --markdown equality.md

Needs torch and numpy alone. Random networks of a space are scored one at a time. Then, for each size, they are shuffled
and scored in populations of that size; networks that were scored before fill up the last one. All proxies are scored in
one call, which shares passes. Each proxy's scores are compared network by network: relative errors are
|a - b| / max(|a|, |b|).

Beware: the engine runs a single network without merging, so that populations of 1 only show whether scores repeat. A
population that it cannot merge also runs one network at a time, and one that exceeds the memory runs in pieces: the
number of whole populations is given for each size, as far as it is known beforehand. A proxy that runs the network
itself always does so one network at a time.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from epochzero.bare import command
from epochzero.data import Batch
from epochzero.engine import Network, Proxy, score_population
from epochzero.engine.device import default_device, machine, usable
from epochzero.engine.population.grouping import PopulationMode, population_size
from epochzero.engine.population.population import Population
from epochzero.engine.precision import set_precision
from epochzero.engine.proxy import split_list
from epochzero.engine.space_networks import batch_for, network_of
from epochzero.errors import MachineError, UserError
from epochzero.evaluate.speed.agreement import Agreement, agreement
from epochzero.evaluate.speed.report import Report, saver
from epochzero.objectives.bundles import bundles, groups
from epochzero.quantities import shape
from epochzero.registry import spaces
from epochzero.types import Origin, Score

Known = dict[int, dict[str, Score]]
"""scores by proxy, of the networks with these numbers"""


@dataclass(frozen=True)
class Settings:
    """The networks, proxies and population sizes to compare, and a time limit."""

    space: str = "nb201"
    networks: int = 64
    populations: str = "1,7,64"
    proxies: str = "all but kernels"
    batch_size: int = 64
    data: str = "pink"
    input_shape: str | None = None
    seed: int = 0
    device: str = "cpu"
    tf32: bool = False
    budget: float = 240.0
    """seconds after which no new network or population is started"""


def run_equality(settings: Settings, show: Callable[[str], None], save: Callable[[Report], None]) -> Report:
    """Scores and compares; calls `show` with the line of each proxy and size, and `save` with the report so far."""
    start = time.perf_counter()
    sizes, members = _sizes(settings), _members(settings.proxies)
    space = spaces[settings.space]
    usable(settings.device)
    set_precision(settings.tf32)
    batch = batch_for(
        space, settings.data, input_shape=shape(settings.input_shape), size=settings.batch_size, seed=settings.seed
    )
    rng = Random(settings.seed)
    scorer = _Scorer(settings, batch, members, [space.sample(rng) for _ in range(settings.networks)])
    report: Report = {
        "machine": machine(settings.device),
        "settings": dataclasses.asdict(settings) | {"data_digest": batch.id, "data_about": batch.about},
        "alone": 0,
        "sizes": [],
        "rows": [],
        "seconds": 0.0,
    }

    def in_time(waiting: Iterable[list[int]]) -> Iterator[list[int]]:
        for numbers in waiting:
            if time.perf_counter() - start > settings.budget:
                return
            yield numbers

    alone: Known = {}
    for numbers in in_time([number] for number in range(settings.networks)):
        alone |= scorer.score(numbers, "never")[0]
    report["alone"] = len(alone)
    for size in sizes:
        found: Known = {}
        whole = begun = 0
        for numbers in in_time(shuffled_populations(settings.networks, size, settings.seed)):
            scores, merged = scorer.score(numbers, "always")
            found = scores | found
            whole, begun = whole + merged, begun + 1
        both = sorted(alone.keys() & found.keys())
        report["sizes"].append({"population": size, "populations": begun, "whole": whole, "networks": len(both)})
        show(_of_size(report["sizes"][-1], settings.networks))
        for proxy in members:
            one = agreement(proxy.text, size, [(found[n][proxy.text], alone[n][proxy.text]) for n in both])
            report["rows"].append(dataclasses.asdict(one))
            show(line(one))
        report["seconds"] = time.perf_counter() - start
        save(report)
    if not any(size["networks"] for size in report["sizes"]):
        raise MachineError("Nothing was compared: the budget was spent. Give more --budget, or fewer --networks.")
    return report


def shuffled_populations(networks: int, size: int, seed: int) -> list[list[int]]:
    """The networks' numbers, shuffled for this size and cut into populations; the last one repeats earlier networks."""
    order = list(range(networks))
    Random(f"{seed} in populations of {size}").shuffle(order)
    starts = (min(first, networks - size) for first in range(0, networks, size))
    return [order[first : first + size] for first in starts]


@dataclass(frozen=True)
class _Scorer:
    """The networks by their numbers, with the data and proxies to score them."""

    settings: Settings
    batch: Batch
    members: Sequence[Proxy]
    archs: Sequence[Any]

    def score(self, numbers: Sequence[int], lockstep: PopulationMode) -> tuple[Known, bool]:
        """Their scores, and true if they ran as one population. Networks are built anew for each call."""
        given, origin = self.settings, Origin(seed=self.settings.seed)
        space = spaces[given.space]
        networks = [network_of(space, self.archs[n], self.batch, origin, given.device) for n in numbers]
        whole = lockstep == "always" and self._is_whole(networks)
        found = score_population(networks, self.members, self.batch, given.seed, lockstep)
        return {n: one.scores for n, one in zip(numbers, found, strict=True)}, whole

    def _is_whole(self, networks: Sequence[Network]) -> bool:
        if len(networks) < 2 or not Population.fits(networks):
            return False
        needs = [need for proxy in self.members for need in proxy.needs]
        return sum(1 / population_size(network, self.batch, needs, "always") for network in networks) <= 1


def _sizes(settings: Settings) -> list[int]:
    if settings.networks < 1:
        raise UserError(f"--networks is {settings.networks}; it has to be at least 1.")
    texts = split_list(settings.populations)
    if not texts or not all(text.isdecimal() and int(text) >= 1 for text in texts):
        raise UserError(f"--populations takes whole numbers from 1 up such as 1,7,64, not {settings.populations!r}.")
    sizes = list(dict.fromkeys(map(int, texts)))
    if max(sizes) > settings.networks:
        raise UserError(f"A population of {max(sizes)} takes as many networks: --networks is {settings.networks}.")
    return sizes


def _members(names: str) -> list[Proxy]:
    """Each proxy once, in the order of the bundles asked for."""
    if not split_list(names):
        raise UserError(f"--proxies names nothing: give proxies or bundles ({', '.join(bundles())}).")
    return list({proxy.text: proxy for members in groups(names).values() for proxy in members}.values())


def line(one: Agreement) -> str:
    """One comparison as text."""
    figures = [_short(one.median_relative_error, ".1e"), _short(one.worst_relative_error, ".1e")]
    scores = f"{one.networks} compared, {one.one_alone} with a score one way alone, {one.neither} with none"
    return (
        f"{one.proxy:24} {one.population:4}  median {figures[0]:8} worst {figures[1]:8} "
        f"Spearman {_short(one.spearman, '.6f'):9} {scores}"
    )


def _of_size(size: dict[str, int], networks: int) -> str:
    ran = "run alone by the engine" if size["population"] == 1 else f"{size['whole']} of them whole"
    return (
        f"populations of {size['population']}: {size['networks']} of {networks} networks were scored both ways, "
        f"in {size['populations']} populations, {ran}"
    )


def _short(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def markdown(report: Report) -> str:
    """A line about the setting, one for each size, and a row for each proxy."""
    of, given, sizes = report["machine"], report["settings"], report["sizes"]
    rows: dict[str, list[str]] = {}
    for one in report["rows"]:
        figures = [_short(one[f"{which}_relative_error"], ".0e") for which in ("median", "worst")]
        lacking = f" ({one['one_alone']} one way alone)" if one["one_alone"] else ""
        missing = f" ({one['neither']} without score)" if one["neither"] else ""
        cell = " / ".join([*figures, _short(one["spearman"], ".6f")]) + lacking + missing
        rows.setdefault(one["proxy"], []).append(cell)
    how = (
        f"{of['device']}, {of['cpus']} cores, torch {of['torch']}, Python {of['python']}, EpochZero "
        f"{of['epochzero']}, {of['date'][:10]}; {given['space']}, {report['alone']} of {given['networks']} random "
        f"networks one by one, batches of {given['batch_size']} of {Path(given['data']).name}, seed {given['seed']}, "
        f"{'TF32' if given['tf32'] else 'single precision'}; median error / worst error / Spearman against one by one"
    )
    heads = [f"populations of {size['population']}" for size in sizes]
    return "\n".join(
        [
            how,
            "",
            *(f"- {_of_size(size, given['networks'])}" for size in sizes),
            "",
            f"| proxy | {' | '.join(heads)} |",
            f"|{'---|' * (len(heads) + 1)}",
            *(f"| {proxy} | {' | '.join(cells)} |" for proxy, cells in rows.items()),
            "",
        ]
    )


def options() -> argparse.ArgumentParser:
    """The options, whose names are those of `Settings`."""
    parser = argparse.ArgumentParser(
        prog="python benchmarks/equality.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    given = Settings()
    parser.add_argument("--space", default=given.space)
    parser.add_argument("--networks", type=int, default=given.networks)
    parser.add_argument("--populations", default=given.populations, help="sizes, separated by commas")
    parser.add_argument("--proxies", default=given.proxies, help=f"proxies and bundles: {', '.join(bundles())}")
    parser.add_argument("--batch-size", type=int, default=given.batch_size)
    parser.add_argument("--data", default=given.data, help="pink, white, or a file")
    parser.add_argument("--input-shape", help="of one sample of noise: 3,32,32")
    parser.add_argument("--seed", type=int, default=given.seed)
    parser.add_argument("--device", default=default_device())
    parser.add_argument("--tf32", action="store_true", help="let cuDNN and cuBLAS round factors to TF32")
    parser.add_argument("--budget", type=float, default=given.budget, help="seconds after which nothing new is started")
    parser.add_argument("--out", type=Path, help="a JSON file")
    parser.add_argument("--markdown", type=Path, help="a file for the table in Markdown")
    return parser


def main() -> None:
    """Compare and print."""
    asked = vars(options().parse_args())
    save = saver(asked.pop("out"), asked.pop("markdown"), as_markdown=markdown)
    run_equality(Settings(**asked), lambda text: print(text, flush=True), save)


if __name__ == "__main__":
    command(main)
