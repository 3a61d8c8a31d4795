"""Tiny archives in the official layouts of CIFAR-10 and CIFAR-100."""

from __future__ import annotations

import io
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FOLDERS = {
    "cifar-10-python": "cifar-10-batches-py",
    "cifar-100-python": "cifar-100-python",
    "cifar-10-binary": "cifar-10-batches-bin",
    "cifar-100-binary": "cifar-100-binary",
}


def python2_pickle(value: object) -> bytes:
    """Protocol 2 as the Python 2 and numpy of the official files wrote it: text is a string of bytes."""
    return b"\x80\x02" + _emit(value) + b"."


def pickled_array(state: object) -> bytes:
    """An array of the state (version, shape, dtype, fortran, content)."""
    call = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
    return call + _emit(state) + b"b"


class Verbatim(bytes):
    """Opcodes that go into a pickle as they are."""


def _emit(value: object) -> bytes:  # noqa: PLR0911
    match value:
        case Verbatim():
            return value
        case bytes() if len(value) < 256:
            return b"U" + bytes([len(value)]) + value
        case bytes():
            return b"T" + len(value).to_bytes(4, "little") + value
        case str():
            return _emit(value.encode())
        case None:
            return b"N"
        case bool():
            return b"\x88" if value else b"\x89"
        case int():
            content = pickle.encode_long(value)
            return b"\x8a" + bytes([len(content)]) + content
        case list() | tuple():
            items = b"".join(map(_emit, value))
            return b"](" + items + b"e" if isinstance(value, list) else b"(" + items + b"t"
        case dict():
            return b"}(" + b"".join(_emit(key) + _emit(item) for key, item in value.items()) + b"u"
        case np.dtype():
            _, arguments, state = tuple(value.__reduce__())
            return b"cnumpy\ndtype\n" + _emit(arguments) + b"R" + _emit(state) + b"b"
        case np.ndarray():
            return pickled_array(value.__reduce__()[2])
    raise TypeError(type(value))


def images(count: int, classes: int) -> tuple[NDArray[np.uint8], list[int]]:
    """Random pixels [N, 3072] and labels."""
    rng = np.random.default_rng(7)
    return rng.integers(0, 256, (count, 3072), dtype=np.uint8), rng.integers(0, classes, count).tolist()


def training_files(kind: str, x: NDArray[np.uint8], y: list[int]) -> dict[str, bytes]:
    """The files of one of the four archives, with x and y as its training set."""
    if kind == "cifar-10-python":
        cuts = np.array_split(np.arange(len(x)), 5)
        files = {f"data_batch_{i}": _table_10(x[cut], [y[j] for j in cut]) for i, cut in enumerate(cuts, 1)}
        return files | {"batches.meta": b"not read", "test_batch": b"not read"}
    if kind == "cifar-100-python":
        table: dict[bytes, Any] = {
            b"filenames": [b"a.png"] * len(y),
            b"batch_label": b"training batch 1 of 1",
        }
        table |= {b"fine_labels": y, b"coarse_labels": [label // 5 for label in y], b"data": x}
        return {"meta": b"not read", "test": b"not read", "train": python2_pickle(table)}
    if kind == "cifar-10-binary":
        records = np.concatenate([np.array(y, np.uint8)[:, None], x], axis=1)
        cuts = np.array_split(np.arange(len(x)), 5)
        files = {f"data_batch_{i}.bin": records[cut].tobytes() for i, cut in enumerate(cuts, 1)}
        return files | {"test_batch.bin": b"not read"}
    fine = np.array(y, np.uint8)[:, None]
    return {"test.bin": b"not read", "train.bin": np.concatenate([fine // 5, fine, x], axis=1).tobytes()}


def write_folder(path: Path, files: dict[str, bytes]) -> Path:
    path.mkdir(parents=True)
    for name, content in files.items():
        (path / name).write_bytes(content)
    return path


def write_archive(path: Path, folder: str, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def _table_10(x: NDArray[np.uint8], y: list[int]) -> bytes:
    table: dict[bytes, Any] = {b"batch_label": b"training batch 1 of 5", b"labels": y, b"data": x}
    return python2_pickle(table)
