"""Batches from what people hold: tensors and arrays, Datasets, DataLoaders, and any iterable of batches.

    x   (x, y)   [x, y]   {"image": x, "label": y}   ({"dense": x, "ids": i}, y)      one batch
    DataLoader, list or iterator of such batches                                      several batches
    Dataset, of torch or Hugging Face                                                 samples

Of a dictionary, the first of `LABELS` is the labels; one other tensor is the input, several are inputs by name. Images
of Pillow, also as samples, become bytes in three colours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from epochzero.data.batch import USUAL_PARTS, USUAL_SIZE, Batch, shape_text
from epochzero.data.image_folder import in_colour
from epochzero.data.npz import CHANNELS
from epochzero.data.packed import Inputs, pack
from epochzero.data.seeding import seeded
from epochzero.data.tensors import from_tensors
from epochzero.errors import DataError, UserError

LABELS = ("labels", "label", "targets", "target", "y")
"""names of the labels in a dictionary"""


@dataclass(frozen=True)
class Given:
    """Samples as tensors, and where they are from."""

    inputs: Inputs
    y: Tensor | None
    about: str = "given tensors"
    classes: int | None = None
    """as the source says, if it does"""
    size: int | None = None
    """samples in one batch of the source; None if it has no batches"""

    @property
    def tensors(self) -> list[Tensor]:
        """The inputs in their order."""
        if isinstance(self.inputs, Tensor):
            return [self.inputs]
        return list(self.inputs.values() if isinstance(self.inputs, Mapping) else self.inputs)

    def __len__(self) -> int:
        return min(len(tensor) for tensor in self.tensors)

    def rows(self, index: Tensor) -> Given:
        """The samples of these numbers."""
        if isinstance(self.inputs, Tensor):
            inputs: Inputs = self.inputs[index]
        elif isinstance(self.inputs, Mapping):
            inputs = {name: tensor[index] for name, tensor in self.inputs.items()}
        else:
            inputs = tuple(tensor[index] for tensor in self.inputs)
        return replace(self, inputs=inputs, y=None if self.y is None else self.y[index])

    def of_classes(self, count: int | None) -> Given:
        """The same with a number of classes that the user names; UserError for a label beyond it."""
        whole = self.y is not None and self.y.numel() > 0 and not self.y.is_floating_point()
        if count is not None and whole and int(self.y.max()) >= count:  # type: ignore[union-attr]
            raise UserError(f"The data has the label {int(self.y.max())}, so there are more than {count} classes.")  # type: ignore[union-attr]
        return self if count is None else replace(self, classes=count)

    def batch(self, size: int | None, most: int | None = None, targets: bool = False) -> Batch:
        """The samples cut into parts of this size, `most` of them at most; all are one part without a size."""
        parts = None if size is None or most is None else max(1, min(most, len(self) // size))
        classes = self.classes
        if classes and self.y is not None and self.y.numel() and not self.y.is_floating_point():
            classes = max(classes, int(self.y.max()) + 1)
        batch = from_tensors(self.inputs, self.y, num_classes=classes, size=size, parts=parts, targets=targets)
        if self.about == "given tensors":
            return batch
        about = batch.about.replace("given tensors", f"{batch.size * batch.parts} samples of {self.about}", 1)
        return replace(batch, about=about, given=0)


def batch_of(
    data: Any,
    y: Any = None,
    *,
    size: int | None = None,
    parts: int = USUAL_PARTS,
    seed: int = 0,
    targets: bool = False,
    classes: int | None = None,
) -> Batch:
    """Returns a batch of `parts` parts, or as many as the data hold.

    A part has `size` samples; by default all of given tensors, those of a loader's batch, or 64 of a Dataset, which are
    drawn by the seed. The seed also shuffles a loader that shuffles. With `targets`, labels have any shape. There are
    `classes`, or as many as the data say.
    """
    if isinstance(data, Batch):
        return data
    given = given_samples(data, y, size, parts, seed).of_classes(classes)
    tensors = given.size is None
    return given.batch(size if tensors else size or given.size, None if tensors else parts, targets)


def batches_of(
    data: Any,
    y: Any,
    seeds: Sequence[int],
    *,
    size: int | None = None,
    parts: int = USUAL_PARTS,
    targets: bool = False,
    classes: int | None = None,
) -> list[Batch]:
    """Returns a batch for each seed: different samples as far as there are enough, else the same in another order.

    An iterator is read once. The first seed has the first batches of a loader, the next seed those that follow; if
    there are too few, and of given tensors, each seed draws its samples.
    """
    if isinstance(data, Batch):
        return [data] * len(seeds)
    if is_dataset(data):
        how: dict[str, Any] = {"size": size, "parts": parts, "targets": targets, "classes": classes}
        return [batch_of(data, y, seed=seed, **how) for seed in seeds]
    given = given_samples(data, y, size, parts * len(seeds), seeds[0]).of_classes(classes)
    size = min(size or given.size or USUAL_SIZE, len(given)) if given.size is None else size or given.size
    each = parts * size
    if given.size is not None and len(given) >= each * len(seeds):
        chosen = [torch.arange(i * each, (i + 1) * each) for i in range(len(seeds))]
    else:
        count = min(len(given) // size, parts) * size
        chosen = [torch.from_numpy(np.random.default_rng(seed).permutation(len(given))[:count]) for seed in seeds]
    return [given.rows(index).batch(size, parts, targets) for index in chosen]


def given_samples(data: Any, y: Any, size: int | None, parts: int, seed: int) -> Given:
    """The samples of tensors, or as many of a Dataset or loader as `parts` parts need."""
    if y is not None:
        return _whole(Given(_inputs(data, "The data"), _labels(y)))
    if is_dataset(data):
        return _from_dataset(data, size or max(1, min(USUAL_SIZE, len(data))), parts, seed)
    if _is_inputs(data) or _is_pair(data):
        return _whole(Given(*_one_batch(data, "The data")))
    with seeded(seed):
        if isinstance(data, IterableDataset):
            data = torch.utils.data.DataLoader(data, batch_size=size or USUAL_SIZE, collate_fn=_collated)
        if not isinstance(data, Iterable) or isinstance(data, (str, bytes)):
            raise DataError(
                f"Data cannot be {_kind(data)}: give tensors or arrays, a pair of inputs and labels, a dictionary of "
                "tensors, a Dataset, a DataLoader, or an iterable of batches."
            )
        return _from_loader(data, size, parts)


def _whole(given: Given) -> Given:
    """The same samples; DataError where there are none, or not a label for each."""
    if any(not one.dim() for one in given.tensors) or not len(given):
        raise DataError("The data hold no sample: give inputs of shape [samples, ...].")
    if given.y is not None and (not given.y.dim() or len(given.y) != len(given)):
        labels = len(given.y) if given.y.dim() else "one number"
        raise DataError(f"The labels should be {len(given)}, one for each input, not {labels}.")
    return given


def is_dataset(data: Any) -> bool:
    """True for samples by number: a Dataset of torch, of Hugging Face, or anything like it."""
    if isinstance(data, IterableDataset):
        return False
    numbered = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    return isinstance(data, Dataset) or (numbered and not isinstance(data, (Tensor, np.ndarray, Mapping, Sequence)))


def _from_dataset(data: Any, size: int, parts: int, seed: int) -> Given:
    count = len(data)
    if count < size:
        raise DataError(f"The Dataset has {count} samples, fewer than one batch of {size}: give a smaller batch size.")
    chosen = np.random.default_rng(seed).permutation(count)[: min(parts, count // size) * size]
    with seeded(seed), _blaming("Dataset"):
        samples = [data[int(i)] for i in chosen]
    inputs, labels = _one_batch(_collated(samples), "The Dataset")
    return Given(inputs, labels, f"a Dataset of {count:,}, drawn with seed {seed}", _classes_of(data), size)


def _from_loader(loader: Iterable[Any], size: int | None, parts: int) -> Given:
    """The first batches of the loader, as many as are needed."""
    read: list[Given] = []
    count = 0
    with _blaming("loader"):
        for number, item in enumerate(loader, 1):
            one = _checked(item, f"Batch {number} of the loader")
            if read and _form(one) != _form(read[0]):
                raise DataError(
                    f"The loader changes the form of its samples: batch 1 has {_form(read[0])}, and batch {number} has "
                    f"{_form(one)}. Make them alike: resize images, pad texts to one length."
                )
            read.append(one)
            count += len(one)
            size = size or len(one)
            if count >= parts * size:
                break
    if not read or size is None:
        raise DataError("The loader yielded no batch: give one with data. An iterator can be read only once.")
    if count < size:
        noun = "batch" if len(read) == 1 else "batches"
        raise DataError(
            f"The loader ended after {len(read)} {noun} with {count} samples, fewer than one batch of {size}: give a "
            "smaller batch size or more data."
        )
    first, columns = read[0], [torch.cat(tensors) for tensors in zip(*(one.tensors for one in read), strict=True)]
    inputs: Inputs
    if isinstance(first.inputs, Mapping):
        inputs = dict(zip(first.inputs, columns, strict=True))
    else:
        inputs = columns[0] if isinstance(first.inputs, Tensor) else tuple(columns)
    y = None if first.y is None else torch.cat([cast(Tensor, one.y) for one in read])
    classes = _classes_of(getattr(loader, "dataset", None))
    return Given(inputs, y, f"the first {len(read)} batches of a loader", classes, size)


def _checked(item: Any, where: str) -> Given:
    """A batch of a loader; DataError that names it where it cannot be used."""
    if isinstance(item, (tuple, list)) and len(item) > 2:
        raise DataError(
            f"{where} is a {type(item).__name__} of {len(item)}: yield a pair of inputs and labels, with several "
            "inputs as a tuple or a dictionary."
        )
    one = Given(*_one_batch(item, where))
    if not min(map(len, one.tensors)):
        raise DataError(f"{where} is empty: leave empty batches out.")
    try:
        pack(one.inputs)
    except DataError as error:
        raise DataError(f"{where} cannot be used. {error}") from None
    return one


@contextmanager
def _blaming(who: str) -> Iterator[None]:
    """Turns an error in the user's loader into a sentence."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        said = (str(error).strip() or "no message").splitlines()[0].rstrip(".")
        raise DataError(f"The {who} raised {type(error).__name__}: {said}.") from error


# ---- one batch


def _is_array(given: object) -> bool:
    return isinstance(given, (Tensor, np.ndarray))


def _is_inputs(given: object) -> bool:
    """True for inputs of a module: one array, several in order, or several by name."""
    if isinstance(given, (tuple, list)):
        return bool(given) and all(map(_is_array, given))
    return _is_array(given) or isinstance(given, Mapping)


def _is_pair(given: object) -> bool:
    """True for inputs with labels."""
    pair = isinstance(given, (tuple, list)) and len(given) == 2
    if not pair or not _is_inputs(given[0]):  # type: ignore[index]
        return False
    labels = given[1]  # type: ignore[index]
    return labels is None or _is_array(labels) or _is_numbers(labels)


def _is_numbers(given: object) -> bool:
    """True for a list of plain numbers, such as labels."""
    return isinstance(given, list) and bool(given) and all(isinstance(one, (bool, int, float)) for one in given)


def _one_batch(given: Any, where: str) -> tuple[Inputs, Tensor | None]:
    """Inputs and labels; the only input in a dictionary is taken out of it."""
    if _is_pair(given):
        return _inputs(given[0], where), None if given[1] is None else _labels(given[1])
    if isinstance(given, Mapping):
        label = next((name for name in LABELS if given.get(name) is not None), None)
        inputs = {name: value for name, value in given.items() if name != label and value is not None}
        only = next(iter(inputs.values())) if len(inputs) == 1 else inputs
        return _inputs(only, where), None if label is None else _labels(given[label])
    return _inputs(given[0] if isinstance(given, (tuple, list)) and len(given) == 1 else given, where), None


def _inputs(given: Any, where: str) -> Inputs:
    """Tensors of the same form."""
    if isinstance(given, Mapping) and given:
        return {str(name): _tensor(value, f"{where}, at '{name}',") for name, value in given.items()}
    if isinstance(given, (tuple, list)) and _is_inputs(given):
        return tuple(_tensor(value, where) for value in given)
    return _tensor(given, where)


def _tensor(given: Any, where: str) -> Tensor:
    if isinstance(given, Tensor):
        return given.detach()
    if not isinstance(given, np.ndarray) or given.dtype.kind not in "fiubc":
        raise DataError(f"{where} has {_kind(given)} in place of a tensor: give tensors or arrays of numbers.")
    shape, kind = given.shape, given.dtype
    if kind == np.uint8 and len(shape) == 4 and shape[3] in CHANNELS and shape[1] not in CHANNELS:
        given = given.transpose(0, 3, 1, 2)  # images are [N, C, H, W]
    whole = kind.kind in "iu" and kind != np.uint8
    return torch.from_numpy(np.ascontiguousarray(given, np.int64 if whole else kind.newbyteorder("=")))


def _labels(given: Any) -> Tensor:
    """Class numbers [B]; a column [B, 1] of them too."""
    if isinstance(given, (list, tuple)):
        given = np.asarray(given)
    y = _tensor(given, "The argument of the labels")
    return y[:, 0] if y.dim() == 2 and y.shape[1] == 1 and not y.is_floating_point() else y


def _form(one: Given) -> str:
    """Names, shapes and types of a sample as text."""
    names = [f"{name} " for name in one.inputs] if isinstance(one.inputs, Mapping) else [""] * len(one.tensors)
    texts = [
        f"{name}{shape_text(tuple(x.shape[1:])) or 'one'} {str(x.dtype).removeprefix('torch.')}"
        for name, x in zip(names, one.tensors, strict=True)
    ]
    return " and ".join([*texts, *(["labels"] if one.y is not None else ["no labels"])])


# ---- samples


def _collated(samples: Sequence[Any]) -> Any:
    """A batch of samples: tensors, arrays, numbers or images of Pillow, alone, in tuples or in dictionaries."""
    first = samples[0]
    if isinstance(first, Mapping):
        return {name: _stacked([sample[name] for sample in samples]) for name in first}
    if isinstance(first, (tuple, list)):
        return [_stacked(column) for column in zip(*samples, strict=True)]
    return _stacked(samples)


def _stacked(column: Sequence[Any]) -> Tensor:
    tensors = [_sample(item) for item in column]
    shapes = sorted({shape_text(tuple(tensor.shape)) for tensor in tensors})
    if len(shapes) > 1:
        raise DataError(
            f"The samples of the Dataset have different shapes, {' and '.join(shapes[:2])}: give it a transform that "
            "makes them alike."
        )
    return torch.stack(tensors)


def _sample(item: Any) -> Tensor:
    if hasattr(item, "getbands"):  # an image of Pillow
        return torch.from_numpy(np.array(in_colour(item)).transpose(2, 0, 1))
    array = item if isinstance(item, Tensor) else np.asarray(item)
    return _tensor(array[None], "A sample of the Dataset")[0]


def _classes_of(dataset: Any) -> int | None:
    """The number of classes that a Dataset declares."""
    features = getattr(dataset, "features", None)
    declared = features if isinstance(features, Mapping) else {}
    for name in LABELS:
        if isinstance(number := getattr(declared.get(name), "num_classes", None), int):
            return number
    classes = getattr(dataset, "classes", None)
    return len(classes) if isinstance(classes, (list, tuple)) and classes else None


def _kind(given: object) -> str:
    """A value in a few words, for a message."""
    if isinstance(given, np.ndarray):
        return f"an array of {given.dtype}"
    return f"{'an' if type(given).__name__[0] in 'aeiou' else 'a'} {type(given).__name__}"
