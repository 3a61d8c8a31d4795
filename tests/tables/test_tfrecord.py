from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from epochzero.errors import DataError
from epochzero.tables import tfrecord
from tests.tables.official import record, slow_crc32c


@pytest.mark.parametrize(
    ("message", "crc"),
    [
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"", 0),
    ],
)
def test_the_crc_of_rfc_3720(message: bytes, crc: int) -> None:
    assert tfrecord.crc32c([message]).tolist() == [crc]
    assert slow_crc32c(message) == crc


def test_many_messages_at_once_are_as_one_by_one() -> None:
    rng = random.Random(0)
    messages = [rng.randbytes(rng.choice([0, 1, 7, 8, 60])) for _ in range(50)]
    assert tfrecord.crc32c(messages).tolist() == [slow_crc32c(message) for message in messages]
    assert tfrecord.crc32c([]).tolist() == []


def test_the_mask_of_a_record() -> None:
    assert tfrecord.masked(np.array([0], np.uint32)).tolist() == [0xA282EAD8]
    assert tfrecord.masked(np.array([0x00008001], np.uint32)).tolist() == [(0x00020001 + 0xA282EAD8) % 2**32]


def test_records_are_read_over_the_edge_of_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfrecord, "BATCH", 3)
    bodies = [b"", b"one", b"two", b"three" * 30, b"four", b"\0", b"six"]
    for many in range(len(bodies) + 1):
        (tmp_path / "a.tfrecord").write_bytes(b"".join(map(record, bodies[:many])))
        assert list(tfrecord.records(tmp_path / "a.tfrecord")) == bodies[:many]


def test_a_changed_byte_is_found_and_its_record_named(tmp_path: Path) -> None:
    content = record(b"first") + record(b"second")
    path = tmp_path / "a.tfrecord"
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(DataError, match=rf"Record {1 + (place >= 21)} of .* is damaged"):
            list(tfrecord.records(path))


def test_a_file_that_was_cut_short(tmp_path: Path) -> None:
    content = record(b"first") + record(b"second")
    path = tmp_path / "a.tfrecord"
    for length in set(range(1, len(content))) - {len(record(b"first"))}:
        path.write_bytes(content[:length])
        with pytest.raises(DataError, match=r"Record [12] of .* is damaged"):
            list(tfrecord.records(path))
