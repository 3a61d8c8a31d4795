"""Trains networks from scratch, several at the same time in processes of their own, and keeps their predictions.

    with MemberTraining(setting, workers=2) as members:
        members.begin(known)              some are trained while others are still looked for
        found = members.found(all)        what they say, once all of them are trained

On a GPU one small network leaves most of the device idle, so a few processes that share it take hardly longer than one.
Predictions are kept in a file named by a digest of everything they depend on, weights in another, so that a stopped run
resumes. Processes end by themselves when their time is over, between two steps: killing one in the middle of its work
on a GPU can end all others that share the GPU through a common server (MPS).
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread

import numpy as np
import torch
from torch import Tensor

from epochzero.data import sealed
from epochzero.files import replacing
from epochzero.plan.module import PlanModule
from epochzero.progress import Progress
from epochzero.registry import spaces
from epochzero.supernet import SinglePath, shared
from epochzero.train.image_data import Images, load_images
from epochzero.train.images import train
from epochzero.train.recipes import Recipe
from epochzero.train.supernet import held_out


class OutOfTimeError(Exception):
    """The time limit of a run is over; its results so far are kept."""


OUT_OF_TIME = 3
"""the exit code of a run that was stopped by the clock"""


@contextmanager
def exit_when_out_of_time() -> Iterator[None]:
    """End the process with `OUT_OF_TIME` where OutOfTimeError is raised."""
    try:
        yield
    except OutOfTimeError:
        print("out of time; run the same command again to resume", file=sys.stderr)
        sys.exit(OUT_OF_TIME)


def stopping(until: float) -> Progress:
    """Returns a progress callback that raises OutOfTimeError after this moment of `time.time()`."""

    def check(done: int, total: int | None, note: str) -> None:
        if time.time() > until:
            raise OutOfTimeError

    return check


@dataclass(frozen=True)
class Setting:
    """The data, recipe and sizes that all members of an ensemble share."""

    space: str
    channels: int
    cells: int
    data: str
    """the file of the images"""
    split: int
    """the seed that holds images out"""
    most: int
    """training images to use, held-out ones included; 0 for all"""
    recipe: Recipe
    device: str
    folder: str
    """where predictions and weights are kept"""

    def images(self) -> Images:
        """Returns the images of the file, at most `most`."""
        images = load_images(self.data)
        if not self.most:
            return images
        test = max(2, self.most * len(images.test_y) // len(images.y))
        return replace(
            images,
            x=images.x[: self.most],
            y=images.y[: self.most],
            test_x=images.test_x[:test],
            test_y=images.test_y[:test],
            facts=images.facts | {"first": self.most},
        )

    def network(self, partial: int = 1) -> SinglePath:
        """Returns the space at this size."""
        return _network(self, partial)


@dataclass(frozen=True)
class Member:
    """A network to be trained."""

    arch: str
    """its text in the space"""
    seed: int


@dataclass(frozen=True, eq=False)
class Predictions:
    """Probabilities of one trained network."""

    held_out: Tensor
    """[n, classes]"""
    test: Tensor
    seconds: float
    """of training and predictions"""


class MemberTraining:
    """Members in training, `workers` at the same time; predictions in the folder are read."""

    def __init__(self, setting: Setting, workers: int = 1, until: float = math.inf) -> None:
        """With one worker, members are trained in this process, when they are asked for."""
        Path(setting.folder).mkdir(parents=True, exist_ok=True)
        self.setting, self.until = setting, until
        self.processes = ProcessPoolExecutor(workers, get_context("spawn"), _begin) if workers > 1 else None
        self.begun: dict[Member, Future[None]] = {}

    def __enter__(self) -> MemberTraining:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.processes is not None:
            self.processes.shutdown(cancel_futures=True)

    def begin(self, members: Sequence[Member]) -> None:
        """Start to train each of them on the images that are not held out, if there are other processes."""
        for member in members:
            if self.processes is not None and member not in self.begun and not is_trained(member, self.setting):
                self.begun[member] = self.processes.submit(_train, member, self.setting, self.until)

    def found(self, members: Sequence[Member]) -> dict[Member, Predictions]:
        """Returns their predictions after training; OutOfTimeError if the time is over."""
        self.begin(members)
        for member in dict.fromkeys(members):
            if member in self.begun:
                self.begun[member].result()
            elif not is_trained(member, self.setting):
                _train(member, self.setting, self.until)
        return {member: _read(_file(member, self.setting)) for member in members}


def is_trained(member: Member, setting: Setting) -> bool:
    """Returns whether its predictions are in the folder."""
    return _file(member, setting).exists()


def network_of(member: Member, setting: Setting) -> PlanModule:
    """Returns a member with its trained weights, in evaluation mode."""
    plan = setting.network().alone(spaces[setting.space].parse(member.arch))
    module = plan.module().to(setting.device)
    module.load_state_dict(sealed.read(weights_file(member, setting))["weights"])
    return module.eval()


def weights_file(member: Member, setting: Setting) -> Path:
    """Returns the file of a member's weights."""
    return _file(member, setting).with_suffix(".pt")


def _begin() -> None:
    """Set a new process up: it ends with its parent, even if that is killed."""
    torch.set_num_threads(1)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@lru_cache(maxsize=1)
def _images(setting: Setting) -> Images:
    return setting.images()


@lru_cache(maxsize=2)
def _network(setting: Setting, partial: int) -> SinglePath:
    images = _images(setting)
    return shared(
        spaces[setting.space], images.num_classes, images.input_shape, setting.channels, setting.cells, partial
    )


def _train(member: Member, setting: Setting, until: float) -> None:
    check = stopping(until)
    check(0, 0, member.arch)
    start, images = time.perf_counter(), _images(setting)
    halves = held_out(images, seed=setting.split)
    of_members = replace(halves, test_x=images.test_x, test_y=images.test_y).to(setting.device)
    plan = setting.network().alone(spaces[setting.space].parse(member.arch))
    trained = train(plan, of_members, setting.recipe, seed=member.seed, device=setting.device, progress=check)
    module, predictions = trained.module.eval(), {}
    with torch.inference_mode():
        for name, x in (("held_out", halves.test_x.to(setting.device)), ("test", of_members.test_x)):
            parts = [module(of_members.standardised(part)).softmax(1) for part in torch.split(x, 500)]
            predictions[name] = torch.cat(parts).float().cpu().numpy()
    sealed.write(weights_file(member, setting), {"weights": dict(module.state_dict())})
    file = _file(member, setting)
    seconds = np.array(time.perf_counter() - start)
    with replacing(file) as opened:
        np.savez_compressed(opened, held_out=predictions["held_out"], test=predictions["test"], seconds=seconds)


def _file(member: Member, setting: Setting) -> Path:
    facts = asdict(setting) | {"folder": "", "data": Path(setting.data).name, "device": ""}
    return Path(setting.folder) / f"{sealed.digest([asdict(member), facts])[:20]}.npz"


def _read(file: Path) -> Predictions:
    with np.load(file, allow_pickle=False) as kept:
        held, test = (torch.from_numpy(kept[name]) for name in ("held_out", "test"))
        return Predictions(held, test, float(kept["seconds"]))
