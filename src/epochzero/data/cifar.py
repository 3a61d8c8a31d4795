"""CIFAR-10 and CIFAR-100 as published: the python and binary archives, packed or unpacked.

    cifar-10-python.tar.gz    cifar-10-batches-py    data_batch_1 .. data_batch_5
    cifar-100-python.tar.gz   cifar-100-python       train
    cifar-10-binary.tar.gz    cifar-10-batches-bin   data_batch_1.bin .. data_batch_5.bin
    cifar-100-binary.tar.gz   cifar-100-binary       train.bin

The reader uses the training files, with the fine labels of CIFAR-100, and does not unpack an archive.

The python files are pickles, and a pickle can run any code. The reader knows only the names that the official files
need, and replaces them by inert stand-ins: no code that the pickle names runs, not even numpy's.

Krizhevsky. Learning multiple layers of features from tiny images. 2009.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from epochzero.data.samples import Samples, reading
from epochzero.errors import DataError
from epochzero.unpickling import InertReader

IMAGE = (3, 32, 32)
PIXELS = 3 * 32 * 32
LARGEST = 1 << 28
"""most bytes of a file in an archive; the largest official one has 155 million"""
BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))

Rows = tuple[NDArray[np.uint8], list[int]]
"""Images [N, 3072] and their labels."""


class _PickledArray:
    """Stand-in for numpy.ndarray: keeps the pickled state of an array."""

    state: Any = None

    def __init__(self, *_: object) -> None: ...

    def __setstate__(self, state: object) -> None:
        self.state = state

    def rows(self) -> NDArray[np.uint8]:
        """Returns the array, if it is one of [N, 3072] bytes."""
        _, shape, dtype, fortran, content = self.state
        if not (isinstance(dtype, _PickledType) and dtype.name in (b"u1", "u1") and isinstance(content, bytes)):
            raise ValueError("its images are not bytes")
        if not (isinstance(shape, tuple) and len(shape) == 2 and shape[1] == PIXELS):
            raise ValueError(f"its images have the shape {shape}, not [N, {PIXELS}]")
        return np.frombuffer(content, np.uint8).reshape(shape, order="F" if fortran else "C")


class _PickledType:
    """Stand-in for numpy.dtype: keeps its name."""

    def __init__(self, name: object = None, *_: object) -> None:
        self.name = name

    def __setstate__(self, state: object) -> None: ...


class _PickleReader(InertReader):
    known: ClassVar = {
        ("numpy.core.multiarray", "_reconstruct"): _PickledArray,
        ("numpy._core.multiarray", "_reconstruct"): _PickledArray,
        ("numpy", "ndarray"): _PickledArray,
        ("numpy", "dtype"): _PickledType,
    }


def _from_pickle(label_key: str, content: bytes) -> Rows:
    """Returns the rows of a dictionary with keys of bytes, or of text if Python 3 wrote the file."""
    table = _PickleReader(io.BytesIO(content), encoding="bytes").load()
    if not isinstance(table, dict):
        raise TypeError("its pickle holds no dictionary")
    data, labels = (table.get(key.encode(), table.get(key)) for key in ("data", label_key))
    if not isinstance(data, _PickledArray):
        raise TypeError("its pickle holds no array 'data'")
    if not isinstance(labels, list) or any(type(label) is not int for label in labels):
        raise TypeError(f"its pickle holds no list of integers '{label_key}'")
    return data.rows(), labels


def _from_binary(label_bytes: int, content: bytes) -> Rows:
    """Returns the rows of records of labels, of which the last is used, and pixels."""
    record = label_bytes + PIXELS
    if len(content) % record:
        raise ValueError(f"its {len(content)} bytes are not whole records of {record}")
    records = np.frombuffer(content, np.uint8).reshape(-1, record)
    return records[:, label_bytes:], records[:, label_bytes - 1].tolist()


@dataclass(frozen=True)
class Format:
    """One of the published formats: the files of the training set and their reader."""

    name: str
    num_classes: int
    files: tuple[str, ...]
    parse: Callable[[bytes], Rows]


FORMATS = (
    Format("cifar10", 10, BATCHES, partial(_from_pickle, "labels")),
    Format("cifar100", 100, ("train",), partial(_from_pickle, "fine_labels")),
    Format("cifar10", 10, tuple(f"{name}.bin" for name in BATCHES), partial(_from_binary, 1)),
    Format("cifar100", 100, ("train.bin",), partial(_from_binary, 2)),
)
TRAINING_FILES = {name for form in FORMATS for name in form.files}


def read(path: Path) -> Samples:
    """Returns the training samples of an official CIFAR archive or of its unpacked folder."""
    with reading(path, "CIFAR data", "download the archive again"):
        contents = _from_folder(path) if path.is_dir() else _from_archive(path)
    form = next((form for form in FORMATS if contents.keys() & set(form.files)), None)
    if form is None:
        raise DataError(
            f"{path} holds no training files of CIFAR-10 or CIFAR-100 (data_batch_1, train, "
            "data_batch_1.bin or train.bin): "
            "give an official archive, the folder unpacked from it, or an .npz file."
        )
    missing = [name for name in form.files if name not in contents]
    if missing:
        raise DataError(f"{path} lacks {', '.join(missing)}: download or unpack the archive again.")
    images: list[NDArray[np.uint8]] = []
    labels: list[int] = []
    for file in form.files:
        with reading(path / file, "CIFAR data", "download the archive again"):
            x, y = form.parse(contents.pop(file))  # [N, 3072]
            if len(x) != len(y):
                raise ValueError(f"it has {len(x)} images but {len(y)} labels")
            if any(not 0 <= label < form.num_classes for label in y):
                raise ValueError(f"it has labels outside 0 to {form.num_classes - 1}")
        images.append(x)
        labels.extend(y)
    pixels = np.concatenate(images).reshape(-1, *IMAGE)  # [N, 3, 32, 32]
    if not len(pixels):
        raise DataError(f"{path} holds no images: download the archive again.")
    return Samples(path, form.name, pixels, np.array(labels, dtype=np.int64), form.num_classes)


def _from_folder(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir() if _wanted(file.name) and file.is_file()}


def _from_archive(path: Path) -> dict[str, bytes]:
    contents = {}
    with tarfile.open(path) as archive:
        for member in archive:
            name = PurePosixPath(member.name).name
            file = archive.extractfile(member) if _wanted(name) and member.isreg() else None
            if file is not None:
                if member.size > LARGEST:
                    raise ValueError(f"its file {name} claims {member.size:,} bytes")
                contents[name] = file.read()
        if archive.fileobj is not None:
            archive.fileobj.read(-1)  # to the very end, where a packed file keeps its checksum
    return contents


def _wanted(name: str) -> bool:
    return name in TRAINING_FILES
