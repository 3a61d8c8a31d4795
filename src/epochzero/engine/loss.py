"""Losses of a batch's outputs: of class labels by default, or one that the user names or brings.

    label           cross-entropy of logits [B, K] and classes [B]; binary cross-entropy of a single logit
    binary          binary cross-entropy of every logit with a target from 0 to 1 of the same shape
    mse             mean squared error of every output with a target of the same shape
    segmentation    cross-entropy of logits [B, K, ...] and classes [B, ...], the mean over places
    next_token      cross-entropy of logits [B, T, K] with the ids [B, T] one place later; by default those of the input

A target of -100 does not count. A function of (outputs, targets) returns one number, or one for each sample; where one
number for each sample is needed, it is called for each.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from epochzero.data import Batch
from epochzero.data.batch import Part
from epochzero.data.packed import Layout
from epochzero.engine.failure import PassFailedError, blaming
from epochzero.errors import UserError
from epochzero.registry import check_known
from epochzero.user_code import is_reference, named_in

IGNORED = -100
Function = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Loss:
    """A loss of outputs and targets; `name` identifies it in a store."""

    name: str
    function: Function = field(repr=False)
    """returns the loss of each sample [B], or for all one number []"""
    classes: bool = False
    """true if targets are one class for each sample, so that there is a logit of the label"""
    checked: bool = True
    """true if the values are checked, which a loss that is always finite and differentiable does not need"""

    def each(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Returns the loss of each sample [B]."""
        losses = self._called(outputs, targets)
        if losses.dim():
            return losses
        return torch.stack([self._called(outputs[i : i + 1], targets[i : i + 1]) for i in range(len(outputs))])

    def mean(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Returns the mean over the samples []; raises a reason if it cannot be used."""
        loss = self._called(outputs, targets).mean()
        if self.checked and not loss.isfinite():
            raise PassFailedError(f"the loss {self.name} is {loss.item()}")
        if self.checked and outputs.requires_grad and not loss.requires_grad:
            raise PassFailedError(
                f"the loss {self.name} is not differentiable: it is cut off from the network's output"
            )
        return loss

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        """Raises a reason if it has no value for such outputs and targets."""
        self.mean(outputs.detach(), targets)

    def _called(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if targets.is_floating_point():
            single = {outputs.shape, targets.shape} == {(len(outputs),), (len(outputs), 1)}
            targets = targets.to(outputs).reshape(outputs.shape if single else targets.shape)
        with blaming(f"the loss {self.name}"):
            loss = self.function(outputs, targets)
        if not isinstance(loss, Tensor) or not loss.is_floating_point() or loss.shape not in ((), (len(outputs),)):
            kind = list(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise PassFailedError(f"the loss {self.name} should be one number, or one for each sample, and is {kind}")
        return loss


# ---- of class labels


def check_labels(shape: Sequence[int], y: Tensor) -> None:
    """Refuses labels that are not classes of logits of this shape; a single logit has the classes 0 and 1."""
    if len(shape) > 2:
        raise PassFailedError(f"the labels are one class for each sample, and the output is {list(shape)}: name a loss")
    outputs = shape[1]
    classes = max(outputs, 2)
    if int(y.max()) >= classes:
        noun = "output" if outputs == 1 else "outputs"
        raise PassFailedError(
            f"the network has {outputs} {noun}, and a label is {int(y.max())}: on noise say --classes {classes}"
        )


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


class LabelLoss(Loss):
    """The loss of class labels."""

    def mean(self, outputs: Tensor, targets: Tensor) -> Tensor:
        check_labels(outputs.shape, targets)
        return label_loss(outputs, targets, "mean")


LABEL = LabelLoss("label", label_loss, classes=True, checked=False)


# ---- of other targets


def _alike(outputs: Tensor, targets: Tensor) -> Tensor:
    """The targets in the shape of the outputs; [B] and [B, 1] are the same."""
    single = {outputs.shape, targets.shape} == {(len(outputs),), (len(outputs), 1)}
    if outputs.shape != targets.shape and not single:
        raise PassFailedError(f"the targets are {list(targets.shape)}, and the output is {list(outputs.shape)}")
    return targets.to(outputs).reshape(outputs.shape)


def binary(outputs: Tensor, targets: Tensor) -> Tensor:
    losses = F.binary_cross_entropy_with_logits(outputs, _alike(outputs, targets), reduction="none")
    return losses.flatten(1).mean(1)


def mse(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - _alike(outputs, targets)).square().flatten(1).mean(1)


def segmentation(outputs: Tensor, targets: Tensor) -> Tensor:
    fits = outputs.dim() > 2 and targets.shape == (len(outputs), *outputs.shape[2:])
    if not fits or targets.is_floating_point():
        raise PassFailedError(f"the targets are {list(targets.shape)}, and the output is {list(outputs.shape)}")
    if (bad := targets[(targets != IGNORED) & ((targets < 0) | (targets >= outputs.shape[1]))]).numel():
        raise PassFailedError(f"the network has {outputs.shape[1]} outputs, and a target is {int(bad[0])}")
    losses = F.cross_entropy(outputs, targets, reduction="none", ignore_index=IGNORED).flatten(1)
    return losses.sum(1) / (targets != IGNORED).flatten(1).sum(1).clamp_min(1)


def next_token(outputs: Tensor, targets: Tensor) -> Tensor:
    if outputs.dim() != 3 or targets.shape != outputs.shape[:2]:
        raise PassFailedError(f"the targets are {list(targets.shape)}, and the output is {list(outputs.shape)}")
    return segmentation(outputs[:, :-1].transpose(1, 2), targets[:, 1:])


LOSSES: dict[str, Function] = {
    "binary": binary,
    "mse": mse,
    "segmentation": segmentation,
    "next_token": next_token,
}
DEFAULTS = (None, "label", "cross_entropy")
"""names of the loss of class labels"""


def needs_labels(loss: Any) -> bool:
    """True if this loss is of class labels."""
    return loss is None or (isinstance(loss, str) and _name(loss) in DEFAULTS)


def with_loss(batch: Batch, loss: Any) -> Batch:
    """Returns the batch for a loss: a name, a function of (outputs, targets), or None for that of class labels."""
    if needs_labels(loss):
        return batch
    made = _loss_of(loss)
    if batch.loss is not None and batch.loss.name == made.name:
        return batch
    if made.function is next_token and batch.part(0)[1] is None:
        if batch.layout is None or not (ids := [i for i, slot in enumerate(batch.layout.slots) if slot.tokens]):
            raise UserError(
                "The loss next_token needs ids: give them as targets, or as whole numbers [samples, places]."
            )
        batch = replace(batch, make_part=partial(_predict_input, batch.make_part, batch.layout, ids[0]))
    return replace(batch, loss=made, id=f"{batch.id}-{made.name}", about=f"{batch.about} Loss: {made.name}.")


def _name(loss: str) -> str:
    return re.sub(r"[\s-]+", "_", loss.strip().lower())


def _loss_of(loss: Any) -> Loss:
    if is_reference(loss):
        loss = named_in(loss, "--loss")
    if isinstance(loss, str):
        name = _name(loss)
        check_known(name, ["cross_entropy", *LOSSES], f"No loss is called '{loss}'")
        return Loss(name, LOSSES[name])
    if not callable(loss):
        raise UserError(f"A loss is a name or a function of outputs and targets, not {type(loss).__name__}.")
    if isinstance(loss, torch.nn.Module):
        name, code = type(loss).__name__, repr(loss)
    else:
        name, code = getattr(loss, "__name__", type(loss).__name__), repr(getattr(loss, "__defaults__", ""))
    try:
        code += inspect.getsource(type(loss) if isinstance(loss, torch.nn.Module) else loss)
    except (OSError, TypeError):
        code += repr(loss) if isinstance(loss, partial) else ""
    return Loss(f"{name.strip('<>')}:{hashlib.sha256(code.encode()).hexdigest()[:8]}", loss)


def _predict_input(make_part: Callable[[int], Part], layout: Layout, slot: int, index: int) -> Part:
    """A part whose targets are the ids of its inputs."""
    x, _ = make_part(index)
    args, named = layout.unpack(x)
    return x, [*args, *named.values()][slot]
