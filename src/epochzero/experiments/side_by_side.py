"""Trains networks from scratch, several at a time in processes of their own, and keeps what they say of images.

On a GPU one small network leaves most of the device idle, so that a few processes that share it take hardly longer
than one. What a network says is kept in a file named by a digest of all that it depends on: a stopped run goes on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from epochzero.registry import spaces
from epochzero.supernet import SinglePath, shared
from epochzero.train.checkpoint import digest
from epochzero.train.image_data import Images, load_images
from epochzero.train.images import train
from epochzero.train.recipes import Recipe
from epochzero.train.supernet import held_out


@dataclass(frozen=True)
class Setting:
    """What all members of an ensemble are trained with."""

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
    """where predictions are kept"""

    def images(self) -> Images:
        """The file's images, as many as there should be."""
        found = load_images(self.data)
        if not self.most:
            return found
        test = max(2, self.most * len(found.test_y) // len(found.y))
        return replace(
            found,
            x=found.x[: self.most],
            y=found.y[: self.most],
            test_x=found.test_x[:test],
            test_y=found.test_y[:test],
            facts=found.facts | {"first": self.most},
        )

    def network(self, partial: int = 1) -> SinglePath:
        """The space at this size."""
        images = _images(self)
        return shared(spaces[self.space], images.num_classes, images.input_shape, self.channels, self.cells, partial)


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
    """that its training and predictions took"""


def trained_side_by_side(members: Sequence[Member], setting: Setting, workers: int) -> dict[Member, Predictions]:
    """Train each of them on the images that are not held out, so many at a time; those in the folder are read."""
    Path(setting.folder).mkdir(parents=True, exist_ok=True)
    wanted = list(dict.fromkeys(members))
    missing = [member for member in wanted if not _file(member, setting).exists()]
    if workers > 1 and len(missing) > 1:
        with ProcessPoolExecutor(min(workers, len(missing)), get_context("spawn"), _begin) as pool:
            list(pool.map(_train, missing, [setting] * len(missing)))
    else:
        for member in missing:
            _train(member, setting)
    return {member: _read(_file(member, setting)) for member in wanted}


def _begin() -> None:
    torch.set_num_threads(1)


@lru_cache(maxsize=1)
def _images(setting: Setting) -> Images:
    return setting.images()


def _train(member: Member, setting: Setting) -> None:
    start, images = time.perf_counter(), _images(setting)
    halves = held_out(images, seed=setting.split)
    of_members = replace(halves, test_x=images.test_x, test_y=images.test_y).to(setting.device)
    plan = setting.network().alone(spaces[setting.space].parse(member.arch))
    module = train(plan, of_members, setting.recipe, seed=member.seed, device=setting.device).module.eval()
    found = {}
    with torch.inference_mode():
        for name, x in (("held_out", halves.test_x.to(setting.device)), ("test", of_members.test_x)):
            parts = [module(of_members.standardised(part)).softmax(1) for part in torch.split(x, 500)]
            found[name] = torch.cat(parts).float().cpu().numpy()
    file = _file(member, setting)
    part = file.with_name(f"{file.stem}.{os.getpid()}.part.npz")
    np.savez(part, held_out=found["held_out"], test=found["test"], seconds=np.array(time.perf_counter() - start))
    part.replace(file)


def _file(member: Member, setting: Setting) -> Path:
    facts = asdict(setting) | {"folder": "", "data": Path(setting.data).name}
    return Path(setting.folder) / f"{digest([asdict(member), facts])[:20]}.npz"


def _read(file: Path) -> Predictions:
    with np.load(file, allow_pickle=False) as kept:
        held, test = (torch.from_numpy(kept[name]) for name in ("held_out", "test"))
        return Predictions(held, test, float(kept["seconds"]))
