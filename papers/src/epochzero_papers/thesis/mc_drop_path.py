"""MC DropPath: one network that predicts several times, with paths dropped at random.

After Gal, Ghahramani. Dropout as a Bayesian approximation. ICML 2016. arXiv:1506.02142
"""

from __future__ import annotations

import torch
from torch import Tensor

from epochzero.ensemble.model import probabilities_of
from epochzero.plan.init import generator
from epochzero.plan.module import PlanModule
from epochzero.train.drop_path import with_drop_path

DROPPED = 0.01
"""share of paths that are dropped, as in the thesis"""


@torch.inference_mode()
def drop_path_probabilities(
    module: PlanModule, x: Tensor, *, often: float = DROPPED, passes: int = 3, seed: int = 0, size: int = 256
) -> Tensor:
    """Probabilities [passes, N, classes] of one network, with different paths dropped in each pass."""
    plan, training = module.plan, module.training
    rng = generator(seed, "drop path")
    module.eval()
    try:
        module.plan = with_drop_path(plan.trunk, often, rng)
        several = [
            torch.cat([probabilities_of(module(some)).cpu() for some in torch.split(x, size)]) for _ in range(passes)
        ]
    finally:
        module.plan = plan
        module.train(training)
    return torch.stack(several)
