"""Tables in Markdown and a plot of curves from several runs of the chain of NESBS.

    python -m epochzero_papers nesbs-report nb201-0.json nb201-1.json nb201-2.json --plot FOLDER --data
    cifar10.npz

All runs are of one space. A figure is the mean over runs, with its standard deviation over them where there are
several; a row that some runs lack says how many have it. The column "tried" counts the ensembles that a method chose
from. With the images of the runs, the predictions of the first run's members are plotted too, as in Figure 5.4
(`ensemble/picture.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from epochzero.ensemble.picture import draw_predictions
from epochzero.errors import UserError
from epochzero.pictures import new_panels, save, style
from epochzero_papers.harness.member_training import Member, MemberTraining, is_trained
from epochzero_papers.harness.options import option
from epochzero_papers.thesis.nesbs_attacks import ENSEMBLES, STAGE
from epochzero_papers.thesis.nesbs_chain import setting_of

Run = Mapping[str, Any]
MEASURES = ("error", "ate", "ppd", "ece", "nll")
SIDES = ("attack", "defence")
PANEL = 3.0
"""inches along each side of a plot"""


def read(files: Sequence[Path]) -> list[Run]:
    """Returns the stages of each run; UserError for runs of several spaces."""
    contents = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    if len({run["settings"]["space"] for run in contents}) != 1:
        raise UserError("A report is of runs in one space: give the files of each space by themselves.")
    return [run["stages"] for run in contents]


def as_markdown(runs: Sequence[Run]) -> str:
    """Returns all tables whose stage some run has."""
    tables = [_ensembles(runs), _discrepancy(runs), _correlations(runs), _deltas(runs), _curves(runs), _attacks(runs)]
    return "\n\n".join(table for table in tables if table) + "\n"


def mean(values: Sequence[float | None], factor: float = 1.0, digits: int = 2) -> str:
    """Returns `12.34 ± 0.56`, from the known values."""
    there = [factor * value for value in values if value is not None]
    if not there:
        return "none"
    spread = f" ± {np.std(there, ddof=1):.{digits}f}" if len(there) > 1 else ""
    return f"{np.mean(there):.{digits}f}{spread}"


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _with(runs: Sequence[Run], stage: str) -> list[Any]:
    return [run[stage] for run in runs if stage in run]


def _rows(entries: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Returns the entries of the runs by the row's name."""
    names = dict.fromkeys(name for one in entries for name in one)
    return {name: [one[name] for one in entries if name in one] for name in names}


def _counted(name: str, having: int, runs: int) -> str:
    return name if having == runs else f"{name} ({having} of {runs} runs)"


def _ensembles(runs: Sequence[Run]) -> str:
    stages = [stage["ensembles"] for stage in _with(runs, "trained")]
    if not stages:
        return ""
    rows, tried = _rows(stages), {way: _tried(runs, way) for way in _rows(stages)}
    heads, lines = ["members trained alike", "error %", "ATE %", "PPD %", "ECE %", "NLL"], []
    for way, own in sorted(rows.items(), key=lambda row: float(np.mean([one["error"] for one in row[1]]))):
        figures = [mean([one[name] for one in own], *((1, 3) if name == "nll" else (100, 2))) for name in MEASURES]
        lines.append([_counted(way, len(own), len(stages)), *figures, *([tried[way]] if any(tried.values()) else [])])
    return _table([*heads, *(["tried"] if any(tried.values()) else [])], lines)


def _tried(runs: Sequence[Run], way: str) -> str:
    """Returns how many ensembles a method chose from by inherited weights; empty for other methods."""
    counts = sorted({stage["tried"] for stage in _with(runs, way) if "tried" in stage})
    return " or ".join(map(str, counts))


def _discrepancy(runs: Sequence[Run]) -> str:
    names = ("most_probable", "best", "gap", "uniform_mean", "posterior_mean")
    lines = [
        [which, *(mean([one[name] for one in found], 100) for name in names)]
        for which in ("post-training", "best-response")
        if (found := _with(runs, f"discrepancy, {which}"))
    ]
    if not lines:
        return ""
    heads = ("posterior; test error %, inherited", "most probable", "best seen", "gap", "uniform", "drawn from it")
    return _table(heads, lines)


def _correlations(runs: Sequence[Run]) -> str:
    stages = [stage["correlations"] for stage in _with(runs, "trained")]
    if not stages:
        return ""
    names = ("spearman", "pearson", "agreement")
    lines = [
        [_counted(case, len(own), len(stages)), *(mean([one[name] for one in own]) for name in names)]
        for case, own in _rows(stages).items()
    ]
    return _table(("estimated against true", "Spearman", "Pearson", "Agreement-30%"), lines)


def _deltas(runs: Sequence[Run]) -> str:
    stages = _with(runs, "deltas")
    if not stages:
        return ""
    heads = list(next(iter(stages[0].values()))["test_error"])
    lines = [
        [tau, *(mean([float(np.mean(one[tau]["test_error"][delta])) for one in stages], 100) for delta in heads)]
        for tau in stages[0]
    ]
    return _table(["test error %, inherited; tau", *(f"delta {delta}" for delta in heads)], lines)


def _curves(runs: Sequence[Run]) -> str:
    stages = _with(runs, "curves")
    if not stages:
        return ""
    lines = []
    for case in stages[0]:
        each = [np.mean(one[case], 0) for one in stages]  # [budget] of each run, mean over trials
        lines.append([case, *(mean([float(own[at]) for own in each], 100) for at in (0, -1))])
    budget = len(stages[0][next(iter(stages[0]))][0])
    return _table(("test error %, inherited", "1 evaluation", f"best of {budget}"), lines)


def _attacks(runs: Sequence[Run]) -> str:
    """Returns the accuracies of the attacked member, and of the whole ensemble."""
    names = list(dict.fromkeys(stage for run in runs for stage in run if stage.startswith(STAGE)))
    if not names:
        return ""
    by_attack = {name: _rows(_with(runs, name)) for name in names}
    ways = _rows([found for name in names for found in _with(runs, name)])
    heads = [f"{name.removeprefix(STAGE)}, {which} %" for name in names for which in SIDES]
    lines = []
    for way in ways:
        own = {name: by_attack[name].get(way, []) for name in names}
        counts = [(len(own[name]), len(_with(runs, name))) for name in names]
        having, attacked = min(counts, key=lambda count: count[0] - count[1])
        figures = [mean([one[f"{which}_accuracy"] for one in own[name]], 100) for name in names for which in SIDES]
        lines.append([_counted(way, having, attacked), *figures])
    images = " or ".join(map(str, sorted({one["images"] for found in ways.values() for one in found})))
    return _table([f"accuracy on {images} test images", *heads], lines)


@style()
def plot(runs: Sequence[Run], folder: Path) -> list[str]:
    """Draw test error over evaluation budget by size and temperature; returns the names of the files."""
    stages = _with(runs, "curves")
    if not stages:
        return []
    panels: dict[str, list[str]] = {}
    for case in stages[0]:
        panels.setdefault(case.partition(", ")[2], []).append(case)
    figure, places = new_panels(len(panels), 3, PANEL, PANEL)
    for axes, (title, cases) in zip(places, panels.items(), strict=True):
        for case in cases:
            trials = 100 * np.concatenate([one[case] for one in stages])  # [runs * trials, budget]
            axes.plot(range(1, trials.shape[1] + 1), trials.mean(0), marker=".", label=case.partition(", ")[0])
        axes.set_title(title)
        axes.set_xlabel("ensembles evaluated")
        axes.set_ylabel("test error %, inherited weights")
        axes.legend()
    folder.mkdir(parents=True, exist_ok=True)
    return save(figure, folder, "nesbs_curves")


def picture(file: Path, data: str, folder: Path) -> Path:
    """Draw the predictions of a run's members on test images; needs the run's folder."""
    run = json.loads(file.read_text(encoding="utf-8"))
    setting = setting_of(run["settings"], data, "cpu", file)
    named = run["stages"]["trained"]["ensembles"]
    members = {way: [Member(**one) for one in named[way]["members"]] for way in ENSEMBLES if way in named}
    missing = [one for own in members.values() for one in own if not is_trained(one, setting)]
    if missing:
        raise UserError(f"The members of '{file}' are not there: bring the run's folder with its file.")
    with MemberTraining(setting) as kept:
        predictions_of = kept.found([one for own in members.values() for one in own])
    predictions = {way: torch.stack([predictions_of[one].test for one in own]) for way, own in members.items()}
    folder.mkdir(parents=True, exist_ok=True)
    return draw_predictions(predictions, setting.images().test_y, folder / "nesbs_predictions.png")


@dataclass(frozen=True)
class Asked:
    """The runs of a report, and the folder of its pictures."""

    files: tuple[Path, ...] = option(about="the files of the runs", positional=True)
    plot: Path | None = option(None, "a folder for a plot of the curves")
    data: str | None = option(None, "the images of the runs: with --plot, also a picture of the first run's members")


def run(asked: Asked) -> str:
    """Returns the tables, after drawing what is asked for."""
    runs = read(asked.files)
    if asked.plot is not None:
        plot(runs, asked.plot)
        if asked.data is not None:
            picture(asked.files[0], asked.data, asked.plot)
    return as_markdown(runs).rstrip("\n")
