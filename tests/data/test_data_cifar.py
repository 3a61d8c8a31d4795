from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from epochzero.data import load
from epochzero.data.cifar import read
from epochzero.errors import DataError
from tests.data.data_cifar import (
    FOLDERS,
    Verbatim,
    images,
    pickled_array,
    python2_pickle,
    training_files,
    write_archive,
    write_folder,
)
from tests.data.data_files import Trap, labelled

COUNT = 12
KINDS = sorted(FOLDERS)


def classes_of(kind: str) -> int:
    return 100 if "100" in kind else 10


@pytest.mark.parametrize("kind", KINDS)
def test_an_official_archive_and_its_folder(tmp_path: Path, kind: str) -> None:
    x, y = images(COUNT, classes_of(kind))
    files = training_files(kind, x, y)
    archive = write_archive(tmp_path / f"{kind}.tar.gz", FOLDERS[kind], files)
    folder = write_folder(tmp_path / FOLDERS[kind], files)
    for path in (archive, folder):
        samples = read(path)
        assert samples.x.dtype == np.uint8
        assert (samples.x == x.reshape(COUNT, 3, 32, 32)).all()
        assert samples.y is not None
        assert samples.y.tolist() == y
        batch = load(path, size=COUNT, parts=1)
        assert batch.num_classes == classes_of(kind)
        assert batch.id.startswith(f"cifar{classes_of(kind)}-")
        assert f"training samples of {path.name}" in batch.about
        z, labels = labelled(batch)
        assert z.double().mean((0, 2, 3)).abs().max() < 1e-6
        assert (z.double().std((0, 2, 3), correction=0) - 1).abs().max() < 1e-6
        assert sorted(labels.tolist()) == sorted(y)
    assert load(archive, size=4).id == load(folder, size=4).id


@pytest.mark.parametrize("classes", [10, 100])
def test_python_and_binary_archives_give_the_same_batch(tmp_path: Path, classes: int) -> None:
    x, y = images(COUNT, classes)
    python, binary = (
        load(write_folder(tmp_path / form, training_files(f"cifar-{classes}-{form}", x, y)), size=4)
        for form in ("python", "binary")
    )
    assert python.id == binary.id
    assert torch.equal(python.part(2)[0], binary.part(2)[0])


def test_the_helper_writes_what_the_official_files_hold() -> None:
    x, y = images(1, 10)
    content = training_files("cifar-10-python", np.repeat(x, 5, 0), y * 5)["data_batch_1"]
    assert content.startswith(b"\x80\x02}")
    assert b"U\x06labels" in content
    assert b"cnumpy.core.multiarray\n_reconstruct\n" in content
    assert b"cnumpy\ndtype\n" in content


def test_a_file_that_python_3_wrote_anew(tmp_path: Path) -> None:
    x, y = images(COUNT, 100)
    content = pickle.dumps({"data": np.asfortranarray(x), "fine_labels": y}, protocol=4)
    assert (read(write_folder(tmp_path / "a", {"train": content})).x.reshape(COUNT, -1) == x).all()


def test_more_classes_may_be_asked_for_but_not_fewer(tmp_path: Path) -> None:
    x, _ = images(COUNT, 10)
    path = write_folder(tmp_path / "a", training_files("cifar-10-binary", x, [9] * COUNT))
    assert load(path, size=4, num_classes=20).num_classes == 20
    with pytest.raises(DataError, match="has the label 9, but 5 classes were asked for"):
        load(path, size=4, num_classes=5)


class Asks:
    """Pickles as a call of anything."""

    def __init__(self, call: Any, *arguments: object) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call, self.arguments


def with_array(state: tuple[object, ...]) -> bytes:
    return python2_pickle({b"data": Verbatim(pickled_array(state)), b"fine_labels": [1]})


ROW: NDArray[np.uint8] = np.zeros((1, 3072), np.uint8)
GLOBALS = "its pickle asks for {}"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (pickle.dumps(Trap()), GLOBALS.format("posix.mkdir")),
        (pickle.dumps({"data": Trap(), "fine_labels": [1]}, protocol=0), GLOBALS.format("posix.mkdir")),
        (pickle.dumps(Asks(np.load, "a.npy", None, True)), GLOBALS.format("numpy.load")),
        (pickle.dumps(Asks(eval, "1")), GLOBALS.format("builtins.eval")),
        (b"cnumpy\nndarray.__class__\n.", "ndarray.__class__"),
        (b"cnumpy\nndarray\n}b.", "cannot be read"),
        (b"cnumpy\nndarray\nN}X\x01\x00\x00\x00aK\x01s\x86b.", "cannot be read"),
        (b"cnumpy\nndarray\n.", "holds no dictionary"),
        (python2_pickle([1, 2]), "holds no dictionary"),
        (python2_pickle({b"data": b"abc", b"fine_labels": [1]}), "holds no array 'data'"),
        (python2_pickle({b"data": ROW}), "holds no list of integers 'fine_labels'"),
        (python2_pickle({b"data": ROW, b"fine_labels": [True]}), "holds no list of integers"),
        (python2_pickle({b"data": ROW, b"fine_labels": [1, 2]}), "has 1 images but 2 labels"),
        (python2_pickle({b"data": ROW, b"fine_labels": [100]}), "labels outside 0 to 99"),
        (python2_pickle({b"data": ROW, b"fine_labels": [-(10**30)]}), "labels outside 0 to 99"),
        (python2_pickle({b"data": ROW.astype(np.int8), b"fine_labels": [1]}), "images are not bytes"),
        (python2_pickle({b"data": ROW.astype(object), b"fine_labels": [1]}), "images are not bytes"),
        (python2_pickle({b"data": ROW[:, :3000], b"fine_labels": [1]}), "have the shape"),
        (with_array((1, (10**9, 3072), np.dtype("u1"), False, b"ab")), "cannot reshape"),
        (with_array((1, (1, 3072))), "not enough values"),
        (b"\x80\x02Nr\xff\xff\xff\x0f.", "holds no dictionary"),  # a memo of 2^28 places
        (b"", "cannot be read"),
        (python2_pickle({b"data": ROW, b"fine_labels": [1]})[:-100], "cannot be read"),
    ],
)
def test_a_hostile_or_damaged_pickle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    archive = write_archive(tmp_path / "cifar-100-python.tar.gz", "cifar-100-python", {"train": content})
    with pytest.raises(DataError, match=says) as error:
        load(archive)
    assert str(error.value).startswith(f"{archive}/train cannot be read as CIFAR data (")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"train.bin": b"ab"}, "its 2 bytes are not whole records of 3074"),
        ({"train.bin": b""}, "holds no images"),
        ({"train.bin": bytes([0, 100, *bytes(3072)])}, "labels outside 0 to 99"),
        (
            {"data_batch_1.bin": b"", "data_batch_3.bin": b""},
            "lacks data_batch_2.bin, data_batch_4.bin, data_",
        ),
        ({"cat.png": b""}, "CIFAR"),
        ({}, "CIFAR"),
    ],
)
def test_folders_and_archives_that_are_not_cifar(tmp_path: Path, files: dict[str, bytes], says: str) -> None:
    for path in (write_folder(tmp_path / "a", files), write_archive(tmp_path / "a.tar.gz", "a", files)):
        with pytest.raises(DataError, match=says) as error:
            load(path)
        assert str(path) in str(error.value)


def test_a_broken_download(tmp_path: Path) -> None:
    x, y = images(COUNT, 10)
    whole = write_archive(tmp_path / "a.tar.gz", "a", training_files("cifar-10-binary", x, y)).read_bytes()
    other_checksum = whole[:-8] + bytes(4) + whole[-4:]
    for content in (b"", b"<html>404</html>", whole[: len(whole) // 2], whole[:-20], other_checksum):
        path = tmp_path / "cifar-10-binary.tar.gz"
        path.write_bytes(content)
        with pytest.raises(DataError, match="cannot be read as CIFAR data"):
            load(path, size=2)
