"""The loss of labels: cross-entropy over several logits, binary cross-entropy for a single one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from epochzero.engine.failure import PassFailedError


def check_labels(shape: Sequence[int], y: Tensor) -> None:
    """Refuses labels that are not classes of logits of this shape; a single logit has the classes 0 and 1."""
    if len(shape) > 2:
        raise PassFailedError(f"the labels are one class for each sample, and the output is {list(shape)}")
    outputs = shape[1]
    if int(y.max()) >= max(outputs, 2):
        noun = "output" if outputs == 1 else "outputs"
        raise PassFailedError(f"the network has {outputs} {noun}, and a label is {int(y.max())}")


def label_loss(logits: Tensor, y: Tensor, reduction: Literal["none", "mean"] = "none") -> Tensor:
    """Returns the loss of each sample [B], or the mean []. A single logit is that of label 1, as for clicks."""
    if logits.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(logits[:, 0], y.to(logits), reduction=reduction)
    return F.cross_entropy(logits, y, reduction=reduction)


def log_sums(logits: Tensor) -> Tensor:
    """Returns [P], the logarithm of the size of the sum of each network's logits [P, B, ...]."""
    return logits.flatten(1).sum(1).abs().log()


def label_logits(logits: Tensor, y: Tensor) -> Tensor:
    """Returns the logit of each sample's label, or the single logit."""
    return logits[:, 0] if logits.shape[1] == 1 else logits.gather(1, y[:, None])[:, 0]  # [B]
