"""Trains the members of an ensemble by one recipe, each from its own seed.

The same architecture several times is a deep ensemble. An interrupted training resumes with the same member.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from epochzero.ensemble.metrics import Measures, measure
from epochzero.ensemble.model import Ensemble, Pixels
from epochzero.plan.module import PlanModule
from epochzero.progress import Progress, silent
from epochzero.spaces.base import Space
from epochzero.train.image_data import Images
from epochzero.train.images import plan_for, train
from epochzero.train.recipes import Recipe


def train_members(
    space: Space,
    archs: Sequence[Any],
    images: Images,
    recipe: Recipe,
    *,
    seed: int = 0,
    device: str = "cpu",
    folder: Path | None = None,
    facts: Mapping[str, Any] | None = None,
    progress: Progress = silent,
) -> Ensemble:
    """Trains each architecture, the i-th from seed + i, with checkpoints in the folder's `member-1`, `member-2`, ..."""
    trained = []
    for place, arch in enumerate(archs):

        def of_member(done: int, total: int | None, note: str, place: int = place) -> None:
            steps = total or 0
            progress(place * steps + done, len(archs) * steps, f"member {place + 1}  {note}")

        where = None if folder is None else folder / f"member-{place + 1}"
        if where is not None:
            where.mkdir(parents=True, exist_ok=True)
        plan = plan_for(space, arch, images, recipe)
        about = {"space": space.name, "arch": space.text(arch)}
        member = train(
            plan, images, recipe, seed=seed + place, device=device, folder=where, facts=about, progress=of_member
        )
        trained.append(_trunk(member.module))
    return Ensemble(space, archs, trained, Pixels.of(images), facts).eval()


def measured(ensemble: Ensemble, images: Images) -> Measures:
    """The measures of the ensemble on the test images."""
    return measure(ensemble.predict(images.standardised(images.test_x)), images.test_y.cpu())


def _trunk(module: PlanModule) -> PlanModule:
    """The network without its auxiliary tower, in the memory format of a loaded one, so that predictions are equal."""
    if module.plan.auxiliary is None:
        return module.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload, no-any-return]
    device = next(module.parameters()).device
    trunk = module.plan.trunk.module().to(device)
    weights = module.weights()
    with torch.no_grad():
        for name, tensor in trunk.weights().items():
            tensor.copy_(weights[name])
    return trunk
