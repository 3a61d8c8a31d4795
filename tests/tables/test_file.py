from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epochzero.errors import DataError, UserError
from epochzero.tables import file

ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "bytes": np.frombuffer(b"abc", np.uint8),
    "numbers": np.array([1.5, -0.0, np.nan, np.inf]),
    "empty": np.empty(0, np.uint32),
    "big endian": np.array([1, 2**31], ">u4"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file.write(tmp_path / "a.ezb", {"about": "é", "n": 3}, ARRAYS)
    return tmp_path / "a.ezb"


def refused(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        file.read(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_arrays_come_back_mapped_and_read_only(path: Path) -> None:
    about, arrays, digest = file.read(path)
    assert about == {"about": "é", "n": 3}
    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert not arrays[name].flags.writeable
    base: Any = arrays["numbers"]
    while not isinstance(base, np.memmap):
        base = base.base
        assert base is not None, "the array is a copy"
    assert arrays["numbers"].ctypes.data % 64 == 0
    assert digest == path.read_bytes()[16:48].hex()


def test_the_same_content_is_the_same_file(path: Path, tmp_path: Path) -> None:
    file.write(tmp_path / "b.ezb", {"about": "é", "n": 3}, ARRAYS)
    assert (tmp_path / "b.ezb").read_bytes() == path.read_bytes()


def test_every_changed_byte_is_found(path: Path) -> None:
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        assert any(word in refused(path) for word in ("damaged or was changed", "not a benchmark file", "has format"))


def test_a_file_that_was_cut_short_or_grew(path: Path) -> None:
    content = path.read_bytes()
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        assert "damaged or was changed" in refused(path) or "not a benchmark file" in refused(path)
    path.write_bytes(content + b"\0" * 64)
    assert f"it has {len(content) + 64} bytes instead of {len(content)}" in refused(path)


def test_a_header_that_is_whole_but_makes_no_sense(tmp_path: Path) -> None:
    file.write(tmp_path / "a.ezb", {}, {"x": np.array([1], np.uint8)})
    content = (tmp_path / "a.ezb").read_bytes()
    length = int.from_bytes(content[8:16], "little")
    for old, new in (
        (b'"|u1"', b'"|O" '),
        (b'"at": 0', b'"at":-8'),
        (b'"bytes": 1', b'"bytes":-1'),
        (b"sections", b"sektions"),
    ):
        header = content[48 : 48 + length]
        assert old in header
        header = header.replace(old, new)
        forged = content[:16] + hashlib.sha256(header).digest() + header + content[48 + length :]
        (tmp_path / "a.ezb").write_bytes(forged)
        assert "its header is invalid" in refused(tmp_path / "a.ezb")


def test_what_is_no_such_file(tmp_path: Path) -> None:
    assert "There is no file" in refused(tmp_path / "absent.ezb")
    (tmp_path / "text.ezb").write_text("arch,accuracy\n" * 10)
    assert "is not a benchmark file. Make one with epochzero data import" in refused(tmp_path / "text.ezb")


def test_nothing_is_left_behind_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "old.ezb").write_text("old")

    def broken(array: object) -> bytes:
        calls.append(array)
        if len(calls) > len(ARRAYS) + 1:
            raise OSError(28, "No space left on device")
        return whole(array)  # type: ignore[arg-type]

    calls: list[object] = []
    whole = file._padded
    monkeypatch.setattr(file, "_padded", broken)
    with pytest.raises(Exception, match="No space left"):
        file.write(tmp_path / "old.ezb", {}, ARRAYS)
    assert [child.name for child in tmp_path.iterdir()] == ["old.ezb"]
    assert (tmp_path / "old.ezb").read_text() == "old"


def test_a_folder_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        file.write(tmp_path, {}, ARRAYS)
    with pytest.raises(UserError, match="cannot be written"):
        file.write(tmp_path / "none" / "a.ezb", {}, ARRAYS)
    assert list(tmp_path.iterdir()) == []
