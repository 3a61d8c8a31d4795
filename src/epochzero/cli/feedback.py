"""`epochzero search --feedback`: every network is trained for a short while."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from epochzero.data import NOISE
from epochzero.errors import UserError
from epochzero.registry import searches
from epochzero.spaces.base import AnySpace
from epochzero.study.sources import Feedback
from epochzero.supernet import methods
from epochzero.train.feedback import ShortTraining


def trained_by(
    recipe: str,
    method: str | None,
    space: AnySpace,
    data: str,
    seed: int,
    device: str,
    given: Mapping[str, object],
) -> Feedback:
    """The short training by this recipe; UserError for options that do not go with it."""
    if method is not None and method not in searches and method in methods:
        raise UserError(f"{method} evaluates no single networks, so --feedback means nothing to it: use hnas.")
    for option, value in given.items():
        if value not in (None, "local"):
            raise UserError(f"Networks are trained here, one after the other: leave out {option} with --feedback.")
    if data in NOISE:
        raise UserError(f"--feedback needs images with labels to train on, and {data} is noise: give --data FILE.npz.")
    trained = ShortTraining.of(recipe, space, Path(data), seed=seed, device=device)
    return Feedback(trained, trained.name)
