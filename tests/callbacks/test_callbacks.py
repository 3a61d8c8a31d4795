"""Callbacks of searches, rankings and trainings: the protocol, TensorBoard, and stand-ins for MLflow and W&B."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import epochzero as ez
from epochzero.callbacks import LOGGERS, telling
from epochzero.errors import UserError
from tests.command import epochzero, refusal
from tests.train.train_images import SMALLEST, write


class Recorded:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.kind = ""
        self.settings: dict[str, Any] = {}
        self.steps: dict[int, dict[str, float]] = {}
        self.summary: dict[str, Any] | None = None

    def begin(self, kind: str, settings: Mapping[str, Any]) -> None:
        assert not self.kind and not self.steps
        self.kind, self.settings = kind, dict(settings)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        assert self.summary is None and all(math.isfinite(value) for value in values.values())
        self.steps[step] = dict(values)

    def end(self, summary: Mapping[str, Any]) -> None:
        assert self.summary is None
        self.summary = dict(summary)


def test_a_search_tells_every_network_and_the_winner(tmp_path: Path) -> None:
    told, again = Recorded(), Recorded()
    how: dict[str, Any] = {"budget": 12, "batch_size": 2, "store": tmp_path / "r.db"}
    found = ez.search("mlp", "rank(params,flops)", **how, callbacks=[told])
    assert (told.kind, told.settings["space"], told.settings["method"]) == ("search", "mlp", "evolution")
    history = {one.step: one.scores for one in found.history}
    assert {step: {"params": own["params"], "flops": own["flops"]} for step, own in told.steps.items()} == history
    assert told.summary is not None and told.summary["arch"] == found.winner.text and told.summary["evaluated"] == 12
    assert told.steps[11]["best"] == told.summary["score"]
    ez.search("mlp", "rank(params,flops)", **how, callbacks=[again])
    assert again.steps == told.steps, "a resumed search tells everything again"


def test_fronts_and_searches_inside_one_network() -> None:
    front, inside = Recorded(), Recorded()
    ez.search("mlp", objectives="params,-flops", budget=8, batch_size=2, callbacks=[front])
    assert len(front.steps) == 8 and front.steps[7]["front"] == front.summary["front"]  # type: ignore[index]
    images = torch.randn(2, 3, 8, 8)
    ez.search("nb201", method="nasi", budget=1, data=(images, torch.arange(2)), callbacks=[inside])
    assert inside.summary is not None and inside.summary["evaluated"] == 1


def test_a_ranking_tells_its_networks_in_order() -> None:
    told = Recorded()
    nets = {"small": nn.Linear(4, 2), "large": nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))}
    ranking = ez.rank(nets, torch.randn(8, 4), proxy="params", seeds=1, callbacks=[told])
    assert told.kind == "rank" and [told.steps[1]["params"], told.steps[2]["params"]] == [58, 10]
    assert told.summary == {"best": "large", "order": ["large", "small"], "says": ranking.sentences}


def test_a_training_tells_its_epochs_the_earlier_ones_too(tmp_path: Path) -> None:
    file, told, again = write(tmp_path / "squares.npz", 24, 8), Recorded(), Recorded()
    found = ez.search("resnet", "params", budget=1, batch_size=2, max_params="30k", data=str(file))
    how: dict[str, Any] = {"epochs": 2, "batch_size": 8, "folder": tmp_path / "run"}
    trained = found.train(file, **how, callbacks=[told])
    assert told.steps == {i: {k: float(v) for k, v in one.items()} for i, one in enumerate(trained.history, 1)}
    assert told.settings["learning_rate"] == 0.1 and told.summary == trained.history[-1]
    found.train(file, **how, callbacks=[again])
    assert again.steps == told.steps


def test_a_failure_is_told_and_a_callback_that_fails_is_named() -> None:
    told = Recorded()
    with pytest.raises(UserError, match="no network"), telling([told], "search", {}):
        raise UserError("no network")
    assert told.summary == {"failed": "no network"}

    class Broken(Recorded):
        def log(self, step: int, values: Mapping[str, float]) -> None:
            raise ConnectionError("the server is gone")

    with pytest.raises(UserError, match="The callback Broken raised ConnectionError in `log`: the server is gone"):
        ez.search("mlp", "params", budget=2, batch_size=2, callbacks=[Broken()])


def test_names_that_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    common = ("search", "--space", "mlp", "--proxy", "params", "--budget", 1, "--batch-size", 2, "--log")
    assert "There is no callback 'tensorbord'. Did you mean 'tensorboard'?" in refusal(*common, "tensorbord:logs")
    assert "does not say where to log: write wandb:NAME" in refusal(*common, "wandb")
    for name in LOGGERS:
        monkeypatch.setitem(sys.modules, name, None)
        assert f"pip install 'epochzero[{name}]'" in refusal(*common, f"{name}:here")


# TensorBoard


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, round(event.value, 4)) for event in events.Scalars(name)]


def test_tensorboard_reads_back_what_was_logged(tmp_path: Path) -> None:
    for losses in ([1.0, 0.5, 0.3333], [1.0, 0.5, 0.25]):  # the second time resumed, and different from the first on
        with telling([f"tensorboard:{tmp_path}"], "train", {"epochs": 3}) as told:
            for epoch, loss in enumerate(losses, 1):
                told.log(epoch, {"loss": loss, "name": "no number", "test_loss": math.nan})
    assert scalars(tmp_path, "loss") == [(1, 1.0), (2, 0.5), (3, 0.25)]


def test_tensorboard_on_the_command_line(tmp_path: Path) -> None:
    common = ("--space", "mlp", "--proxy", "params", "--batch-size", 2)
    assert epochzero("search", *common, "--budget", 3, "--log", f"tensorboard:{tmp_path}/a").code == 0
    assert [step for step, _ in scalars(tmp_path / "a", "params")] == [0, 1, 2]
    assert epochzero("rank", "2", "48", *common, "--seeds", 1, "--log", f"tensorboard:{tmp_path}/b").code == 0
    assert len(scalars(tmp_path / "b", "value")) == 2
    file = write(tmp_path / "squares.npz", 16, 8)
    asked = ("train", "--space", "resnet", "--arch", SMALLEST, "--data", file, "--epochs", 1, "--out", tmp_path / "run")
    assert epochzero(*asked, "--tensorboard", tmp_path / "c", "--log", f"tensorboard:{tmp_path}/d").code == 0
    assert scalars(tmp_path / "c", "test_loss") == scalars(tmp_path / "d", "test_loss") != []


# Stand-ins: the calls of the real packages, and nothing else


def test_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, Any]] = []
    module = ModuleType("mlflow")
    for name in ("set_experiment", "log_params", "set_tags", "end_run"):
        setattr(module, name, lambda given, name=name: calls.append((name, given)))
    vars(module)["start_run"] = lambda run_name: calls.append(("start_run", run_name))
    vars(module)["log_metrics"] = lambda metrics, step: calls.append(("log_metrics", (step, metrics)))
    monkeypatch.setitem(sys.modules, "mlflow", module)
    found = ez.search("mlp", "rank(params,flops)", budget=2, batch_size=2, callbacks=["mlflow:mine"])
    names = [name for name, _ in calls]
    assert names[:3] == ["set_experiment", "start_run", "log_params"] and names[-2:] == ["set_tags", "end_run"]
    assert calls[0][1] == "mine" and calls[2][1]["space"] == "mlp" and calls[-1][1] == "FINISHED"
    assert [given[0] for name, given in calls if name == "log_metrics"] == [0, 1]
    assert calls[-2][1]["arch"] == found.winner.text
    with pytest.raises(KeyError), telling(["mlflow:mine"], "search", {}) as told:
        told.log(1, {"snip(a=1)": 2.0})
        raise KeyError("gone")
    assert calls[-3] == ("log_metrics", (1, {"snip_a_1_": 2.0})) and calls[-1] == ("end_run", "FAILED")


def test_wandb(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    run = SimpleNamespace(
        log=lambda values, step: calls.append((step, values)),
        summary={},
        finish=lambda **given: calls.append(given),
    )
    module = ModuleType("wandb")

    def init(project: str, job_type: str, config: dict[str, Any]) -> SimpleNamespace:
        calls.append((project, job_type, config))
        return run

    vars(module)["init"] = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    found = ez.search("mlp", "params", budget=2, batch_size=2, callbacks=["wandb:mine"])
    (project, kind, config), *steps, code = calls
    assert (project, kind, config["space"], code) == ("mine", "search", "mlp", {"exit_code": 0})
    assert [step for step, _ in steps] == [0, 1] and run.summary["arch"] == found.winner.text
