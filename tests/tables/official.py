"""Small files in the formats of the official benchmarks, written here from their descriptions."""

from __future__ import annotations

import base64
import bz2
import json
import pickle
import struct
from collections import OrderedDict
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

CELLS = (
    "|nor_conv_3x3~0|+|nor_conv_3x3~0|avg_pool_3x3~1|+|skip_connect~0|nor_conv_3x3~1|skip_connect~2|",
    "|none~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|",
    "|nor_conv_1x1~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|",
)
"""of NAS-Bench-201"""

HASHED = {
    "0000cb5372fad9d62c470df699ac6d52": (
        "0100010001001000010000000101000001000000010000000",
        "input,conv3x3-bn-relu,maxpool3x3,conv1x1-bn-relu,maxpool3x3,conv1x1-bn-relu,output",
    ),
    "0000fa05697179112aaf69c2f0a51a0f": (
        "0101000001000000010010000100000001000000010000000",
        "input,conv1x1-bn-relu,conv3x3-bn-relu,maxpool3x3,conv1x1-bn-relu,maxpool3x3,output",
    ),
}
"""two cells of NAS-Bench-101 with the hashes that the benchmark gives them"""


# Records


def slow_crc32c(message: bytes) -> int:
    """Bit by bit, as the polynomial says."""
    crc = 0xFFFFFFFF
    for byte in message:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(message: bytes) -> bytes:
    crc = slow_crc32c(message)
    return ((((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


def record(body: bytes) -> bytes:
    """One record of TensorFlow."""
    length = len(body).to_bytes(8, "little")
    return length + masked(length) + body + masked(body)


def varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def double(field: int, value: float) -> bytes:
    return bytes([field << 3 | 1]) + struct.pack("<d", value)


def evaluation(epoch: float, seconds: float, train: float, val: float, test: float) -> bytes:
    """EvaluationData of NAS-Bench-101, with the checkpoint's path that is left blank in the published file."""
    numbers = (epoch, seconds, train, val, test)
    body = b"".join(double(field, value) for field, value in enumerate(numbers, start=1)) + b"\x32\x00"
    return b"\x0a" + varint(len(body)) + body


def run_101(digest: str, epochs: int, val: float, test: float, seconds: float, params: int = 3_729_162) -> bytes:
    """A record of NAS-Bench-101."""
    metrics = (
        evaluation(0, 0, 0.1, 0.1, 0.1)
        + evaluation(epochs / 2, seconds / 2, 0.5, 0.4, 0.3)
        + evaluation(epochs, seconds, 1.0, val, test)
        + b"\x10"
        + varint(params)
        + double(3, 2 * seconds)
    )
    matrix, ops = HASHED[digest]
    return record(json.dumps([digest, epochs, matrix, ops, base64.b64encode(metrics).decode()]).encode())


# Pickles


class Hostile:
    """A pickle of it writes a file when it is loaded by a reader that trusts it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.path), "w")


def trial(epochs: int, accuracies: dict[str, float], params: Any = 0.5, latency: Any = (0.02,)) -> dict[str, Any]:
    """One run of NAS-Bench-201, with accuracies that begin at 10 % and end as given."""
    curve = {
        f"{name}@{epoch}": final if epoch == epochs - 1 else 10.0
        for name, final in accuracies.items()
        for epoch in range(epochs)
    }
    return {
        "name": "infer.tiny",
        "net_state_dict": None,
        "train_acc1es": dict.fromkeys(range(epochs), 50.0),
        "train_acc5es": None,
        "train_losses": dict.fromkeys(range(epochs), 1.0),
        "train_times": OrderedDict.fromkeys(range(epochs), 2.5),
        "arch_config": {"channel": 16, "num_cells": 5},
        "params": params,
        "flop": np.float64(100.0),
        "seed": "0777",
        "epochs": epochs,
        "latency": None if latency is None else list(latency),
        "eval_names": list(accuracies),
        "eval_acc1es": curve,
        "eval_times": {},
        "eval_losses": {},
    }


def runs(arch: str, epochs: int, first: float, seeds: tuple[int, ...] = (777, 888)) -> dict[str, Any]:
    """The runs of one architecture; seed 888 is two points better."""
    results = {}
    for seed, accuracy in zip(seeds, (first, first + 2), strict=False):
        results["cifar10-valid", seed] = trial(epochs, {"x-valid": accuracy - 3, "ori-test": accuracy - 1})
        results["cifar10", seed] = trial(epochs, {"ori-test": accuracy})
        results["cifar100", seed] = trial(epochs, {"ori-test": 1.0, "x-valid": accuracy - 20, "x-test": accuracy - 21})
        results["ImageNet16-120", seed] = trial(
            epochs, {"ori-test": 1.0, "x-valid": accuracy - 40, "x-test": accuracy - 41}
        )
    datasets = ("cifar10-valid", "cifar10", "cifar100", "ImageNet16-120")
    return {
        "arch_index": 0,
        "arch_str": arch,
        "all_results": results,
        "dataset_seed": {dataset: list(seeds) for dataset in datasets},
        "clear_net_done": True,
    }


def pickled(value: object) -> bytes:
    """As in the published files of NATS-Bench, where numpy before 2.0 has another name for the place of its scalars."""
    content = BytesIO()
    pickler: Any = pickle._Pickler(content, 4)
    pickler.framer.start_framing = lambda: None  # frames have a length, which the change of the name would break
    pickler.dump(value)
    return content.getvalue().replace(b"\x8c\x16numpy._core.multiarray", b"\x8c\x15numpy.core.multiarray")


def nats_folder(folder: Path, cells: tuple[str, ...] = CELLS, listed: int | None = None) -> Path:
    """A folder of NATS-Bench: architecture i ends at 50 + 10 i % after 12 epochs and 60 + 10 i % after 20."""
    folder.mkdir(exist_ok=True)
    names = [*cells, *(f"absent{i}" for i in range((listed or len(cells)) - len(cells)))]
    meta = {"meta_archs": names, "total_archs": len(names), "arch2infos": None, "evaluated_indexes": set()}
    for name, content in {"meta": meta, **{f"{i:06d}": nats_cell(i, cell) for i, cell in enumerate(cells)}}.items():
        (folder / f"{name}.pickle.pbz2").write_bytes(bz2.compress(pickled(content)))
    return folder


def nats_cell(index: int, cell: str) -> OrderedDict[str, Any]:
    short, full = (runs(cell, epochs, first + 10 * index) for epochs, first in ((12, 50.0), (20, 60.0)))
    return OrderedDict({"12": short, "200": full})
