"""Training in recipes: a part of the images, and folders from which a stopped run resumes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from epochzero.train.image_data import Images
from epochzero.train.images import Trained, plan_for, train
from epochzero.train.recipes import Recipe
from epochzero_papers.harness.base import Work


def some(images: Images, count: int | None) -> Images:
    """Returns the first `count` training and test images; all if None."""
    if count is None or count >= len(images.y):
        return images
    kept = {name: getattr(images, name)[:count] for name in ("x", "y", "test_x", "test_y")}
    return replace(images, **kept, facts=images.facts | {"train": count, "test": len(kept["test_y"])})


def folder_at_store(work: Work, what: str) -> Path | None:
    """Returns a folder next to the store for resuming; None without a store on disk."""
    if work.store.path == ":memory:":
        return None
    folder = Path(f"{work.store.path}.{what}")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def folder_for(work: Work, what: str) -> Iterator[Path]:
    """Yields a folder next to the store, or a temporary one."""
    kept = folder_at_store(work, what)
    if kept is not None:
        yield kept
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def trained(
    work: Work,
    name: str,
    space: Any,
    arch: Any,
    images: Images,
    recipe: Recipe,
    *,
    seed: int,
    facts: Mapping[str, Any],
) -> Trained:
    """Returns a network after its training; `name` is the folder of its checkpoints."""
    place = folder_at_store(work, "training")
    folder = None if place is None else place / name.replace(" ", "-")
    if folder is not None:
        folder.mkdir(exist_ok=True)
    plan = plan_for(space, arch, images, recipe)
    return train(plan, images, recipe, seed=seed, device=work.device, folder=folder, facts=facts)
