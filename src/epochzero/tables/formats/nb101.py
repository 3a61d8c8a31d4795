r"""NAS-Bench-101: `nasbench_full.tfrecord` or `nasbench_only108.tfrecord`, without TensorFlow.

Each record is one run, as JSON:

    [hash, epochs, "0100010...": the rows of the adjacency matrix, "input,conv3x3-bn-relu,...,output", metrics]

The metrics are base64 of a protocol buffer (proto2):

    ModelMetrics    1: EvaluationData, repeated (before, halfway and after training)    2: int32 trainable_parameters
    EvaluationData  2: double training_time    4: double validation_accuracy    5: double test_accuracy

The import keeps the evaluation after training: `val_acc_108ep` and `test_acc_108ep` of each run, as fractions, runs
numbered in the file's order; `train_seconds_108ep`, the mean over runs; `params`. It leaves out the training accuracy
and the halfway point.

Ying, Klein, Real, Christiansen, Murphy, Hutter. NAS-Bench-101: towards reproducible neural architecture search.
ICML 2019. arXiv:1902.09635. Layout: nasbench/api.py and nasbench/lib/model_metrics.proto of
github.com/google-research/nasbench; the wire format: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from epochzero.errors import DataError
from epochzero.tables import tfrecord
from epochzero.tables.columns import Column
from epochzero.tables.formats import Format, Source, formats
from epochzero.tables.rows import Gatherer, Rows

DATASET = "cifar10"
PARAMS = Column("params", "params", DATASET)
EVALUATIONS = 3
CELLS = 423_624

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""wire types of protocol buffers"""


class Evaluation(NamedTuple):
    """Time and accuracies of a network at one point of its training."""

    seconds: float
    val: float
    test: float


class Run(NamedTuple):
    """One record."""

    hash: str
    epochs: int
    arch: str
    params: int
    final: Evaluation


def read(source: Source) -> Rows:
    """Returns the rows of a file of records."""
    gatherer, path = Gatherer(), source.path
    hashes: dict[str, str] = {}
    runs: Counter[tuple[int, int]] = Counter()
    for number, record in enumerate(tfrecord.records(path), start=1):
        try:
            run = parse(record)
        except (ValueError, TypeError, KeyError, IndexError, struct.error) as error:
            raise DataError(f"Record {number} of {path} is not a run of NAS-Bench-101: {error}.") from error
        arch = hashes.setdefault(run.hash, run.arch)
        row = gatherer.row(arch)
        seed = runs[row, run.epochs]
        runs[row, run.epochs] += 1
        for split in ("val", "test"):
            column = Column(f"{split}_acc_{run.epochs}ep", "accuracy", DATASET, split, run.epochs, seed, "fraction")
            gatherer.put(row, column, getattr(run.final, split))
        seconds = Column(f"train_seconds_{run.epochs}ep", "train_seconds", DATASET, epochs=run.epochs)
        before = gatherer.get(row, seconds) if seed else 0.0
        gatherer.put(row, seconds, (before * seed + run.final.seconds) / (seed + 1))
        gatherer.put(row, PARAMS, run.params)
    if len(set(hashes.values())) != len(hashes):
        raise DataError(f"{path} has two hashes for one cell. Download the file again.")
    some = f"{path} holds {len(hashes):,} of the {CELLS:,} cells of NAS-Bench-101."
    return gatherer.rows(str(path), list(hashes), [some] if len(hashes) != CELLS else [])


def parse(record: bytes) -> Run:
    """Returns the run in a record. Raises ValueError or a similar error for any other content."""
    digest, epochs, bits, ops, metrics = json.loads(record)
    size = math.isqrt(len(bits))
    if size * size != len(bits):
        raise ValueError(f"a matrix of {len(bits)} entries is not square")
    matrix = ";".join(bits[i * size : (i + 1) * size] for i in range(size))
    params = 0
    evaluations: list[bytes] = []
    for field, value in fields(base64.b64decode(metrics, validate=True)):
        if field == 1 and isinstance(value, bytes):
            evaluations.append(value)
        elif field == 2 and isinstance(value, int):
            params = value
    if len(evaluations) != EVALUATIONS:
        raise ValueError(f"it has {len(evaluations)} evaluations, not {EVALUATIONS}")
    return Run(str(digest), int(epochs), f"{matrix} {ops}", params, _evaluation(evaluations[-1]))


def _evaluation(content: bytes) -> Evaluation:
    doubles = {field: value for field, value in fields(content) if isinstance(value, float)}
    return Evaluation(doubles[2], doubles[4], doubles[5])


def fields(content: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """Yields the numbered values of a protocol buffer: whole numbers, doubles, bytes."""
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        kind = tag & 7
        if kind == VARINT:
            value, at = _varint(content, at)
            yield tag >> 3, value
        elif kind == FIXED64:
            (number,) = struct.unpack_from("<d", content, at)
            yield tag >> 3, number
            at += 8
        elif kind == BYTES:
            length, at = _varint(content, at)
            if at + length > len(content):
                raise ValueError("its metrics end too soon")
            yield tag >> 3, content[at : at + length]
            at += length
        elif kind == FIXED32:
            at += 4
        else:
            raise ValueError(f"its metrics have a value of the unknown kind {kind}")


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a number of its metrics is too long")


formats.register("nb101", Format("a .tfrecord of NAS-Bench-101", lambda source: source.ends(".tfrecord"), read))
