"""Trains a network on images with a recipe, and resumes exactly where it stopped.

    images = load_images("cifar10.npz")
    trained = train_architecture(space, arch, images, recipe, Path("run"), seed=0)

Everything random in an epoch comes from one generator, seeded by the training's seed and the epoch's number, and the
learning rate is a function of the step. Weights and momentum are therefore enough to resume after any epoch: on a CPU,
a training that was killed and resumed ends with the same bits. On a GPU it runs in mixed precision (bfloat16).
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, Unpack

import torch
from torch import nn

from epochzero.callbacks import Callback, telling
from epochzero.data import white
from epochzero.data.sealed import put
from epochzero.engine.failure import PassFailedError, blaming
from epochzero.engine.modules.outputs import pick
from epochzero.engine.space_networks import built
from epochzero.errors import UserError
from epochzero.plan import Plan
from epochzero.progress import Progress, silent
from epochzero.spaces.base import AnySpace, GivesPlans, ModuleSpace, Space
from epochzero.train.checkpoint import Checkpoints
from epochzero.train.image_data import Images
from epochzero.train.loop import Training
from epochzero.train.processes import Processes
from epochzero.train.recipes import Recipe
from epochzero.train.teacher import Teacher

FORMAT = 1
"""version of the checkpoint format"""
METRICS = "metrics.jsonl"

Watch = Callable[[dict[str, float]], None]
"""called with the record of each epoch after it was trained, and first with those of a training that resumes"""


class How(TypedDict, total=False):
    """Keywords of `train`, with its defaults."""

    seed: int
    device: str
    teacher: Teacher | None
    processes: Processes | None
    progress: Progress
    watch: Watch | None


@dataclass
class Trained:
    """A trained network and the history of its training."""

    module: nn.Module
    history: list[dict[str, float]]
    """for each epoch: loss and accuracy in training and test, learning rate, seconds, images per second"""
    resumed: int = 0
    """epochs that were read from a checkpoint"""
    refused: list[str] = field(default_factory=list)
    """why damaged checkpoints were skipped"""


def plan_for(space: Space, arch: Any, images: Images, recipe: Recipe) -> Plan:
    """The network for these images, with its auxiliary tower if the recipe uses one and the space has one."""
    wants_tower = recipe.auxiliary > 0 and "auxiliary" in inspect.signature(space.plan).parameters
    plan: Callable[..., Plan] = space.plan
    more = {"auxiliary": True} if wants_tower else {}
    network = plan(arch, images.num_classes, images.input_shape, **more)
    if network.output_shape != (images.num_classes,):
        raise UserError(f"The networks of {space.name} do not classify images: they cannot be trained on images.")
    return network


def module_for(space: ModuleSpace, arch: Any, images: Images, seed: int) -> nn.Module:
    """The module of an architecture for these images."""
    batch = white(images.input_shape, images.num_classes, 2, 1, seed)
    return built(space, arch, batch, seed)


def check_module(module: nn.Module, images: Images) -> None:
    """UserError for a module that does not classify these images."""
    training = module.training
    try:
        with torch.no_grad(), blaming("it"):
            shape = list(pick(module.eval()(images.standardised(images.x[:2])), None).shape)
    except PassFailedError as reason:
        raise UserError(f"The module cannot be trained on these images: {reason}.") from None
    finally:
        module.train(training)
    if shape != [2, images.num_classes]:
        raise UserError(f"The module should give [2, {images.num_classes}] for two of these images, and gives {shape}.")


def train_architecture(
    space: AnySpace,
    arch: Any,
    images: Images,
    recipe: Recipe,
    folder: Path | None = None,
    callbacks: Sequence[Callback | str] = (),
    **how: Unpack[How],
) -> Trained:
    """Trains an architecture of a space; a checkpoint names both. `callbacks` are told of each epoch."""
    if callbacks:
        facts = {"space": space.name, "arch": space.text(arch), "seed": how.get("seed", 0), **recipe.as_json()}
        with telling(callbacks, "train", facts | {"data": images.facts["file"]}) as told:
            how["watch"] = lambda record: told.log(int(record["epoch"]), record)
            trained = train_architecture(space, arch, images, recipe, folder, **how)
            told.summary |= trained.history[-1]
        return trained
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    facts = {"space": space.name, "arch": space.text(arch)}
    network: Plan | nn.Module
    if isinstance(space, GivesPlans):
        network = plan_for(space, arch, images, recipe)
    else:
        network = module_for(space, arch, images, how.get("seed", 0))
    return train(network, images, recipe, folder=folder, facts=facts, **how)


def train(
    network: Plan | nn.Module,
    images: Images,
    recipe: Recipe,
    *,
    seed: int = 0,
    device: str = "cpu",
    folder: Path | None = None,
    facts: Mapping[str, Any] | None = None,
    teacher: Teacher | None = None,
    processes: Processes | None = None,
    progress: Progress = silent,
    watch: Watch | None = None,
) -> Trained:
    """Trains a network by a recipe. With a folder, every epoch is kept there, and an interrupted training resumes.

    A module is trained in place.

    `facts` identify the network (space, architecture) and are kept in the checkpoint with recipe and data. With several
    `processes`, the first one writes, and each has its own device in place of `device`.
    """
    together = processes or Processes(device=device)
    if not isinstance(network, Plan):
        check_module(network, images)
    run = Training(network, images, recipe, seed, together, teacher)
    identity: dict[str, Any] = {
        **(facts or {}),
        "num_classes": images.num_classes,
        "input_shape": list(images.input_shape),
        "auxiliary": isinstance(network, Plan) and network.auxiliary is not None,
        "recipe": recipe.as_json(),
        "seed": seed,
        "data": images.facts,
        "teacher": None if teacher is None else teacher.about,
    }
    kept = None if folder is None else Checkpoints(folder)
    trained = Trained(run.module, [])
    if kept is not None and (state := kept.last()) is not None:
        _check_same(kept.folder, state, identity)
        run.restore(state)
        trained.history, trained.resumed = list(state["history"]), state["epoch"]
        trained.refused = kept.refused
    together.wait()
    writes = kept if together.first else None
    _write_metrics(writes, trained.history)
    if watch is not None:
        for record in trained.history:
            watch(record)
    for epoch in range(trained.resumed, recipe.epochs):
        trained.history.append(run.epoch(epoch, progress))
        if writes is not None:
            state = {"format": FORMAT, "identity": identity, "epoch": epoch + 1, "history": trained.history}
            writes.write(epoch + 1, state | run.state())
            _write_metrics(writes, trained.history)
        if watch is not None:
            watch(trained.history[-1])
    return trained


def _check_same(folder: Path, state: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
    """UserError if the folder holds another training."""
    if state.get("format") != FORMAT or not isinstance(state.get("identity"), dict):
        raise UserError(f"The folder '{folder}' holds checkpoints of another program: choose another folder.")
    differs = [key for key, value in identity.items() if state["identity"].get(key) != value]
    if differs:
        raise UserError(
            f"The folder '{folder}' holds a training with another {', another '.join(differs)}: choose another folder, "
            "or remove this one."
        )


def _write_metrics(kept: Checkpoints | None, history: list[dict[str, float]]) -> None:
    """One line of JSON for each epoch."""
    if kept is not None:
        lines = "".join(f"{json.dumps(record)}\n" for record in history)
        put(kept.folder / METRICS, lines.encode(), "list of epochs", "; checkpoints are safe")
