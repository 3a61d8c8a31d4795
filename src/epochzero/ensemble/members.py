"""Trains the members of an ensemble by one recipe, each from its own seed.

The same architecture several times is a deep ensemble. An interrupted training resumes with the same member.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from epochzero.ensemble.model import Ensemble, Pixels
from epochzero.ensemble.selection import Job
from epochzero.plan.module import PlanModule
from epochzero.progress import part_of


def train_members(job: Job, archs: Sequence[Any], facts: Mapping[str, Any] | None = None) -> Ensemble:
    """Trains each architecture, the i-th from seed + i, with checkpoints in the folder's `member-1`, `member-2`, ..."""
    trained = []
    for place, arch in enumerate(archs):
        progress = part_of(job.progress, place, len(archs), f"member {place + 1}")
        trained.append(_trunk(job.trained(arch, job.images, place, f"member-{place + 1}", progress)))
    return Ensemble(job.space, archs, trained, Pixels.of(job.images), facts).eval()


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
