"""One of several processes that train a small network together: `python -m tests.train.training_process FILE OUT`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from epochzero.plan import Plan, chain
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.pool import GlobalAvgPool
from epochzero.train.image_data import load_images
from epochzero.train.images import Trained, train
from epochzero.train.processes import joined
from epochzero.train.recipes import Recipe
from tests.train.train_images import CLASSES

RECIPE = Recipe(epochs=2, batch_size=16, learning_rate=0.2, pad=0, flip=False)


def network() -> Plan:
    """Without batch norms, so that a share of a batch says what the whole says."""
    return chain((3, 8, 8), conv=Conv(8, 3, 1, 1), relu=ReLU(), pool=GlobalAvgPool(), head=Linear(CLASSES))


def run(file: Path, folder: Path) -> Trained:
    with joined("cpu") as processes:
        return train(network(), load_images(file), RECIPE, folder=folder, processes=processes)


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(Path(sys.argv[1]), Path(sys.argv[2]))
