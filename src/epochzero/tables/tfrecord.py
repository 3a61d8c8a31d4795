r"""A reader of TensorFlow's record files that needs no TensorFlow.

    8 bytes   length n         4 bytes   masked CRC-32C of the 8 bytes
    n bytes   data             4 bytes   masked CRC-32C of the data

    masked(crc) = rotate_right(crc, 15) + 0xa282ead8      mod 2^32

The reader checks both checksums of every record, for many records at once, one byte of each per step.

Format: tensorflow.org/tutorials/load_data/tfrecord. CRC-32C (Castagnoli): RFC 3720, appendix B.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from epochzero.errors import DataError

BATCH = 4096
"""number of records that are read and checked together"""
POLYNOMIAL = 0x82F63B78
LARGEST = 1 << 30
"""most bytes of one record; a larger length is damage"""


def _table() -> NDArray[np.uint32]:
    crc = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = np.where(crc & 1, (crc >> 1) ^ np.uint32(POLYNOMIAL), crc >> 1).astype(np.uint32)
    return crc


TABLE = _table()


def crc32c(messages: Sequence[bytes]) -> NDArray[np.uint32]:
    """Returns the CRC-32C of each message."""
    lengths = np.array([len(message) for message in messages])
    order = np.argsort(-lengths, kind="stable")
    starts = np.concatenate([[0], np.cumsum(lengths[order])])[:-1]
    content = np.frombuffer(b"".join(messages[i] for i in order), np.uint8)
    longer = np.searchsorted(-lengths[order], -np.arange(lengths.max(initial=0)), "left")  # messages with such a byte
    crc = np.full(len(messages), 0xFFFFFFFF, np.uint32)
    for place, many in enumerate(longer):
        crc[:many] = TABLE[(crc[:many] ^ content[starts[:many] + place]) & 0xFF] ^ (crc[:many] >> 8)
    in_order = np.empty_like(crc)
    in_order[order] = ~crc
    return in_order


def masked(crc: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Returns the CRC as record files store it."""
    return ((crc >> 15 | crc << 17) + np.uint32(0xA282EAD8)).astype(np.uint32)


def records(path: Path) -> Iterator[bytes]:
    """Yields the data of each record. Raises DataError if a checksum is wrong or the file ends too soon."""
    with path.open("rb") as file:
        before, whole, size = 0, True, path.stat().st_size
        while whole:
            heads: list[bytes] = []
            bodies: list[bytes] = []
            while len(bodies) < BATCH and whole and (head := file.read(12)):
                length = int.from_bytes(head[:8], "little")
                body = file.read(length + 4) if length <= min(size, LARGEST) else b""
                whole = len(head) == 12 and len(body) == length + 4
                if whole:
                    heads.append(head)
                    bodies.append(body)
            right = _checked(heads) & _checked(bodies)
            if not (right.all() and whole):
                bad = int(right.argmin()) if not right.all() else len(bodies)
                raise DataError(
                    f"Record {before + bad + 1} of {path} is damaged or cut short. Download the file again."
                )
            yield from (body[:-4] for body in bodies)
            before, whole = before + len(bodies), len(bodies) == BATCH


def _checked(messages: Sequence[bytes]) -> NDArray[np.bool_]:
    """Returns True for each message whose last four bytes are the checksum of the bytes before."""
    stored = np.frombuffer(b"".join(message[-4:] for message in messages), "<u4")
    return np.asarray(masked(crc32c([message[:-4] for message in messages])) == stored)
