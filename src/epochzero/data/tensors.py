"""A batch made of tensors that the caller has already: nothing is drawn and nothing normalised."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from epochzero.data.batch import DEFAULT_CLASSES, Batch, Part, check_request, digest, shape_text
from epochzero.errors import DataError


def from_tensors(x: Tensor, y: Tensor | None = None, *, num_classes: int | None = None, parts: int = 1) -> Batch:
    """Inputs [N, ...] and, where there are any, labels [N], cut into so many equal parts."""
    check_request(num_classes, max(len(x), 1), parts, 0)
    if x.dim() < 2 or len(x) < parts:
        raise DataError(f"Inputs of shape {list(x.shape)} cannot be cut into {parts} batches of [samples, ...].")
    if x.is_complex() or not torch.isfinite(x.float()).all():
        raise DataError("The inputs hold complex, infinite or missing (nan) numbers; give finite real ones.")
    if y is not None and (y.shape != x.shape[:1] or y.is_floating_point() or y.is_complex()):
        raise DataError(f"The labels should be {len(x)} whole numbers, one for each input.")
    classes = num_classes or (DEFAULT_CLASSES if y is None else int(y.max()) + 1)
    if y is not None and not 0 <= int(y.min()) <= int(y.max()) < classes:
        raise DataError(f"The labels run from {int(y.min())} to {int(y.max())}; they should be 0 to {classes - 1}.")
    inputs = x.detach().cpu().float().contiguous()
    labels = None if y is None else y.detach().cpu().long().contiguous()
    size = len(x) // parts

    content = digest(
        inputs.numpy().tobytes(), b"" if labels is None else labels.numpy().tobytes(), inputs.shape, classes, parts
    )
    return Batch(
        id=f"tensors-{shape_text(tuple(x.shape[1:]))}-{classes}c-{size}-{content[:12]}",
        about=f"given tensors, taken as they are; {'no labels' if y is None else 'labels given'}, {classes} classes.",
        input_shape=tuple(x.shape[1:]),
        num_classes=classes,
        size=size,
        parts=parts,
        make_part=partial(_part, inputs, labels, size),
    )


def _part(inputs: Tensor, labels: Tensor | None, size: int, index: int) -> Part:
    some = slice(index * size, (index + 1) * size)
    return inputs[some], None if labels is None else labels[some]
