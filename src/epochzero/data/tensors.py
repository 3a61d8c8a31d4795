"""Batches from given tensors, without sampling or normalisation."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from epochzero.data.batch import DEFAULT_CLASSES, Batch, Part, check_request, digest, shape_text
from epochzero.data.packed import Inputs, Layout, pack
from epochzero.errors import DataError


def from_tensors(
    x: Inputs,
    y: Tensor | None = None,
    *,
    num_classes: int | None = None,
    parts: int | None = None,
    size: int | None = None,
    targets: bool = False,
) -> Batch:
    """Cuts inputs [N, ...] and optional labels [N] into equal parts.

    With `targets`, y are no classes but targets [N, ...] of a loss that is named to `score`, `search` or `rank`.

    Parts have `size` samples, or N / `parts`. Given only a size, there are as many parts as fit; given neither, one.
    Several inputs are a tuple or a dictionary of tensors. Integers (ids, tokens) stay integers; bytes are images and
    are scaled to 0 to 1.
    """
    inputs, layout = pack(x)
    check_request(num_classes, 1 if size is None else size, 1 if parts is None else parts, 0)
    if parts is None:
        parts = 1 if size is None else max(1, len(inputs) // size)
    if inputs.dim() < 2 or len(inputs) < parts * (size or 1):
        count = "a batch" if parts == 1 else f"{parts} batches"
        each = "[samples, ...]" if size is None else f"{size} samples"
        raise DataError(f"Inputs of shape {list(inputs.shape)} cannot be cut into {count} of {each}.")
    if y is not None and targets:
        return _cut(inputs, layout, _targets(y, len(inputs)), num_classes or _outputs(y), parts, size)
    if y is not None and (y.shape != inputs.shape[:1] or y.is_floating_point() or y.is_complex()):
        raise DataError(
            f"The labels should be {len(inputs)} whole numbers, one for each input; for other targets name a loss."
        )
    classes = num_classes or (DEFAULT_CLASSES if y is None else int(y.max()) + 1)
    if y is not None and not 0 <= int(y.min()) <= int(y.max()) < classes:
        raise DataError(f"The labels run from {int(y.min())} to {int(y.max())}; they should be 0 to {classes - 1}.")
    return _cut(inputs, layout, None if y is None else y.detach().cpu().long(), classes, parts, size)


def _targets(y: Tensor, count: int) -> Tensor:
    """Targets in single precision or as whole numbers."""
    if y.dim() < 1 or len(y) != count or y.is_complex():
        raise DataError(f"The targets should be real numbers [{count}, ...], one sample for each input.")
    y = y.detach().cpu()
    if y.is_floating_point() and not y.isfinite().all():
        raise DataError("The targets hold infinite or missing (nan) numbers; give finite ones.")
    return y.float() if y.is_floating_point() else y.long()


def _outputs(y: Tensor) -> int:
    """The outputs that a network needs for these targets: their width, or the number of classes in them."""
    if y.is_floating_point():
        return 1 if y.dim() == 1 else y.shape[1]
    return max(1, int(y.max()) + 1)


def _cut(
    inputs: Tensor, layout: Layout | None, labels: Tensor | None, classes: int, parts: int, size: int | None
) -> Batch:
    given = len(inputs)
    size = given // parts if size is None else size
    shape = tuple(inputs.shape[1:])
    inputs = inputs[: parts * size].contiguous()
    labels = None if labels is None else labels[: parts * size].contiguous()

    label_bytes = b"" if labels is None else labels.numpy().tobytes()
    kinds = () if layout is None else (layout,)
    content = digest(inputs.numpy().tobytes(), label_bytes, inputs.shape, classes, parts, *kinds)
    return Batch(
        id=f"tensors-{shape_text(shape)}-{classes}c-{size}-{content[:12]}",
        about=f"given tensors{'' if layout is None else f' ({layout})'}, taken as they are; "
        f"{'no labels' if labels is None else 'labels given'}, {classes} classes.",
        input_shape=shape,
        num_classes=classes,
        size=size,
        parts=parts,
        make_part=partial(_part, inputs, labels, size),
        layout=layout,
        given=given,
    )


def _part(inputs: Tensor, labels: Tensor | None, size: int, index: int) -> Part:
    some = slice(index * size, (index + 1) * size)
    return inputs[some], None if labels is None else labels[some]
