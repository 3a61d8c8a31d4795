"""`epochzero search --feedback`: every network that is looked at is trained for a short while."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from epochzero.data import NOISE
from epochzero.errors import UserError
from epochzero.spaces.base import AnySpace
from epochzero.study.sources import Feedback
from epochzero.supernet import methods
from epochzero.train.feedback import ShortTraining


def trained_by(
    recipe: str | None,
    method: str,
    space: AnySpace,
    data: str,
    seed: int,
    device: str,
    given: Mapping[str, object],
) -> Feedback | None:
    """Who trains the networks, if anyone; UserError for options that do not go with it."""
    if recipe is None:
        return None
    if method in methods:
        raise UserError(f"{method} looks at no single networks, so --feedback means nothing to it: use hnas.")
    for option, value in given.items():
        if value not in (None, "local"):
            raise UserError(f"Networks are trained here, one after the other: leave out {option} with --feedback.")
    if data in NOISE:
        raise UserError(f"--feedback needs images with labels to train on, and {data} is noise: give --data FILE.npz.")
    trained = ShortTraining.of(recipe, space, Path(data), seed=seed, device=device)
    return Feedback(trained, trained.name)
