"""NASI with many bounds, penalties and budgets, from one recording for each seed.

    python -m epochzero_papers nasi-record --data cifar10.npz --seed 0 --steps 400 --out 0.json
    python -m epochzero_papers nasi-report *.json --table nb201.csv.gz --steps 100,400 --nu mean,adaptive,100

All networks are sampled at alpha_0 = 0, so s and its gradient at each step depend on neither nu, mu nor the budget T:
recorded once, they give the search of any nu, mu and T without evaluating another network. A recording also holds the s
of the networks that `nu mean` averages. The same command resumes a recording that was stopped, or extends it with more
--steps.

`nasi-record` needs torch and numpy alone. `nasi-report` prints the test accuracies of the networks of NAS-Bench-201
that are chosen, as means and standard deviations over seeds, for each kind of data and labels; without --table, it
prints the sizes of the networks, for any space.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from epochzero.engine.device import usable
from epochzero.engine.precision import set_precision
from epochzero.engine.space_networks import batch_for
from epochzero.errors import DataError, UserError
from epochzero.quantities import key_values, shape
from epochzero.registry import spaces
from epochzero.supernet import State, make, relax
from epochzero.supernet.base import resumed
from epochzero.supernet.nasi import SAMPLED, Nasi, alpha, bar, fresh, most_probable, number, paper, stepped
from epochzero.supernet.relaxed import Relaxed
from epochzero_papers.harness.options import device_option, option
from epochzero_papers.nasi.saved import Saved

FREE = ("nu", "nu0", "mu")
"""settings that a recording does not depend on"""
KINDS = ("labels", "data")
SPACE = "nb201"
ACCURACIES = {"CIFAR-10": "cifar10_test", "CIFAR-100": "cifar100_test", "ImageNet16-120": "imagenet16_test"}


# Recording


@dataclass(frozen=True)
class RecordSettings:
    """The settings of a recording."""

    out: Path = option(about="the recording, a JSON file")
    space: str = option(SPACE)
    steps: int = option(Nasi.steps)
    data: str = option("pink")
    data_seed: int = option(0)
    parts: int = option(100, "batches of data, used in turn")
    input_shape: str | None = option(None, "of one sample of noise: 3,32,32")
    batch_size: int = option(64)
    seed: int = option(0)
    labels: str = option("true", "true or random")
    data_kind: str = option("true", "true, or random for N(0, 1) in place of the images")
    device: str = device_option()
    tf32: bool = option(False, "let cuDNN and cuBLAS round factors to TF32")
    option: tuple[str, ...] = option((), "another option of nasi: key=value; may be repeated")


def recorded(nasi: Nasi, steps: int, progress: Callable[[State], None], state: State | None = None) -> State:
    """Returns s and its gradient for at least `steps` steps, after the networks of the mean; resumes from a state."""
    kept = {key: value for key, value in nasi.settings.items() if key not in FREE}
    task: State = {"classes": nasi.batch.num_classes, "input_shape": list(nasi.batch.input_shape)}
    start: State = {"mean": [], "s": [], "slopes": []}
    taken = int(state["step"]) if state and steps > 0 else 0  # type: ignore[arg-type]
    now: Any = resumed(state, {**kept, **task}, max(steps, taken), start)
    while len(now["mean"]) < SAMPLED:
        now = {**now, "mean": [*now["mean"], nasi.of_mean(len(now["mean"]) + 1)]}
        progress(now)
    while now["step"] < steps:
        s, of_s = nasi.measured(now["step"] + 1)
        now = {**now, "step": now["step"] + 1, "s": [*now["s"], s], "slopes": [*now["slopes"], of_s.tolist()]}
        progress(now)
    return now  # type: ignore[no-any-return]


def record(asked: RecordSettings) -> None:
    """Record, and write it to the file."""
    if asked.out.suffix != ".json":
        raise UserError(f"--out takes a name that ends with .json, not '{asked.out}'.")
    set_precision(asked.tf32)
    usable(asked.device)
    space, file = spaces[asked.space], Saved(asked.out)
    batch = batch_for(
        space,
        asked.data,
        input_shape=shape(asked.input_shape),
        size=asked.batch_size,
        parts=asked.parts,
        seed=asked.data_seed,
    )
    given = {"labels": asked.labels, "data": asked.data_kind, **key_values(asked.option)}
    if later := [name for name in FREE if name in given]:
        raise UserError(f"A recording does not depend on {', '.join(later)}: give that to the report.")
    nasi = make("nasi", space, batch, asked.seed, asked.device, given)
    assert isinstance(nasi, Nasi)
    start = time.perf_counter()
    state = recorded(nasi, asked.steps, file.saving(asked.steps), file.state)
    file.write({"seconds": file.seconds + time.perf_counter() - start, "state": state})


# Searches from a recording


@dataclass(frozen=True)
class Recording:
    """The file of `record`, with the choices of its space."""

    state: Any
    relaxed: Relaxed

    @staticmethod
    def read(file: Path) -> Recording:
        try:
            state = json.loads(file.read_text(encoding="utf-8"))["state"]
            settings = state["settings"]
            space, sizes = settings["space"], (settings["classes"], tuple(settings["input_shape"]))
            complete = len(state["mean"]) == SAMPLED and len(state["s"]) == len(state["slopes"]) == state["step"]
        except (ValueError, KeyError, TypeError):
            raise DataError(
                f"{file} is not a recording of NASI: `python -m epochzero_papers nasi-record` makes one."
            ) from None
        if not complete:
            raise DataError(f"{file} is a recording that has hardly begun: run its `nasi-record` command again.")
        return Recording(state, relax(spaces[space], *sizes, settings["channels"], settings["cells"]))

    @property
    def steps(self) -> int:
        return int(self.state["step"])

    @property
    def seed(self) -> int:
        return int(self.state["settings"]["seed"])

    @property
    def kind(self) -> tuple[str, str]:
        """The kinds of labels and data."""
        labels, data = (self.state["settings"][name] for name in KINDS)
        return labels, data

    @property
    def others(self) -> dict[str, Any]:
        """The settings that recordings of one report share."""
        return {k: v for k, v in self.state["settings"].items() if k not in ("seed", *KINDS)}

    def chosen(self, steps: int, nu: str, mu: float, nu0: float) -> Any:
        """Returns the architecture that NASI selects with these settings after `steps` steps."""
        if not 1 <= steps <= self.steps:
            raise UserError(f"This recording has {self.steps} steps, not {steps}.")
        barred = bar(self.relaxed, self.state["settings"]["without"])
        now: State = {"step": 0, **fresh(len(barred), self._bound(nu))}
        for s, of_s in zip(self.state["s"][:steps], self.state["slopes"], strict=False):
            now = stepped(now, s, torch.tensor(of_s, dtype=torch.float64), mu, nu0)
        return most_probable(self.relaxed, barred, alpha(now))

    def _bound(self, nu: str) -> float | None:
        if nu == "adaptive":
            return None
        return sum(self.state["mean"]) / SAMPLED if nu == "mean" else number("nu", nu)


@dataclass(frozen=True)
class ReportSettings:
    """The recordings of a report, and the settings of NASI to choose with."""

    files: tuple[Path, ...] = option(about="recordings", positional=True)
    table: Path | None = option(None, "accuracies of NAS-Bench-201; without it the report has sizes")
    steps: str = option("", "budgets such as 100,400; default: the lengths of the recordings")
    nu: str = option("mean,adaptive,10,100,1000")
    nu0: str = option("paper", "of the adaptive bound")
    mu: str = option("1,2")


def report(asked: ReportSettings) -> str:
    """Returns tables in Markdown, one for each kind of labels and data."""
    recordings = [Recording.read(file) for file in asked.files]
    _check(recordings)
    space = spaces[recordings[0].others["space"]]
    judged: Figures = _sizes(space) if asked.table is None else _accuracies(space, asked.table)
    _, nu0 = paper(space)
    nu0 = nu0 if asked.nu0 == "paper" else number("nu0", asked.nu0)
    mus = [number("mu", text) for text in _listed(asked.mu)]
    budgets = [_count(text) for text in _listed(asked.steps)] or sorted({r.steps for r in recordings})
    if min(budgets) > (most := max(recording.steps for recording in recordings)):
        raise UserError(f"The longest of the recordings has {most} steps: record more, or report fewer --steps.")
    lines = []
    for labels, data in sorted({recording.kind for recording in recordings}, reverse=True):
        alike = [recording for recording in recordings if recording.kind == (labels, data)]
        heads = ("T", "nu", "mu", *judged.heads)
        lines += [f"Labels {labels}, data {data}:", "", _row(heads), _row(["---"] * len(heads))]
        for steps in budgets:
            long = [recording for recording in alike if recording.steps >= steps]
            for nu in _listed(asked.nu) if long else ():
                for mu in mus:
                    archs = [recording.chosen(steps, nu, mu, nu0) for recording in long]
                    lines.append(_row([str(steps), nu, f"{mu:g}", *judged.of(archs)]))
        lines.append("")
    return "\n".join(lines)


def _check(recordings: Sequence[Recording]) -> None:
    """Refuse recordings that cannot share a table."""
    if any(recording.others != recordings[0].others for recording in recordings):
        raise UserError("Recordings of one report differ in seed, labels and data alone: report the others apart.")
    if len({(recording.kind, recording.seed) for recording in recordings}) < len(recordings):
        raise UserError("Two of the recordings have the same seed, labels and data: give each once.")


class Figures(NamedTuple):
    """The columns of a table, and the cells of one row of selected architectures."""

    heads: Sequence[str]
    of: Callable[[Sequence[Any]], list[str]]


def _accuracies(space: Any, file: Path) -> Figures:
    """Returns mean and deviation of each accuracy, with the counts of seeds and of unknown accuracies."""
    from epochzero.study.sources import TableSource

    if space.name != SPACE:
        raise UserError(f"Accuracies are known of {SPACE} here, and these recordings are of {space.name}.")
    table = TableSource.read(file, space)

    def of(archs: Sequence[Any]) -> list[str]:
        held = [text for text in map(space.text, archs) if table.known(text) is not None]
        columns = [[table.value(text, column).value for text in held] for column in ACCURACIES.values()]
        return [*map(_mean, columns), str(len(archs)), str(len(archs) - len(held))]

    return Figures([*(f"{name} %" for name in ACCURACIES), "seeds", "not in the table"], of)


def _sizes(space: Any) -> Figures:
    """Returns mean and deviation of millions of parameters and of multiply-accumulates."""

    def of(archs: Sequence[Any]) -> list[str]:
        plans = [space.plan(arch) for arch in archs]
        columns = [[plan.params / 1e6 for plan in plans], [plan.flops / 1e6 for plan in plans]]
        return [*map(_mean, columns), str(len(archs))]

    return Figures(["million parameters", "million multiply-accumulates", "seeds"], of)


def _mean(values: Sequence[float]) -> str:
    if not values:
        return "none"
    return f"{statistics.mean(values):.2f}" + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"--steps takes whole numbers from 1 such as 100,400, not {text!r}.")
    return int(text)
