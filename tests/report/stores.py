"""Stores with runs that were never run: known scores, in the form in which searches and benchmarks leave them."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from epochzero.registry import spaces
from epochzero.report import Subject
from epochzero.report.reading import reading
from epochzero.store import JSON, Evaluated, Run, Store, manifest
from epochzero.types import Score, Setting

SPACE = spaces["nb201"]
HERE = Setting("nb201", "pink-3x32x32", "default:0")
DATA = "1/f noise of shape 3x32x32 with zero mean and unit variance, seed 0; random labels of 10 classes."
EVIL = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


def networks(count: int, seed: int = 0) -> list[str]:
    """Different ones."""
    rng = Random(seed)
    drawn = (SPACE.text(SPACE.sample(rng)) for _ in itertools.count())
    found: dict[str, None] = {}
    while len(found) < count:
        found[next(drawn)] = None
    return list(found)


def begin(store: Store, kind: str = "search", **settings: JSON) -> Run:
    """A run with the settings of its kind."""
    usual: dict[str, dict[str, JSON]] = {
        "search": {"space": "nb201", "proxy": "dextr", "method": "evolution", "budget": 100, "seed": 0},
        "bench": {"space": "nb201", "table": "known.csv-1234", "targets": ["cifar10_test"], "sample": 30},
        "experiment": {"experiment": "dextr_table1", "seed": 0},
    }
    told = usual.get(kind, {}) | settings
    return store.begin_run(kind, told, manifest(told | {"data": DATA}))


def record(
    run: Run, archs: Sequence[str], scores: Mapping[str, Sequence[float | str]], setting: Setting = HERE, first: int = 0
) -> None:
    """Scores by proxy; a text in the place of a number is why there is none."""
    for step, arch in enumerate(archs):
        each = {name: (_score(values[step]), 0.5) for name, values in scores.items()}
        run.record(setting, [Evaluated(first + step, arch, each)])


def _score(value: float | str) -> Score:
    return Score.failed(value) if isinstance(value, str) else Score(value)


@dataclass
class Opened:
    """A report's content, taken apart by the description of its format alone."""

    head: dict[str, Any]
    columns: dict[str, Any] = field(default_factory=dict)

    def names(self, kind: str) -> list[str]:
        return [column["name"] for column in self.head["columns"] if column["kind"] == kind]


def opened(store: Path, **more: Any) -> Opened:
    with reading(store) as reader:
        packed = gzip.decompress(Subject(store, **more).packed(reader))
    length = int.from_bytes(packed[:4], "little")
    assert (4 + length) % 8 == 0
    found = Opened(json.loads(packed[4 : 4 + length], parse_constant=_refuse))
    names = ["step", *(column["name"] for column in found.head["columns"])]
    networks = found.head["networks"]
    numbers = np.frombuffer(packed[4 + length :], f"<f{found.head['bytes']}").reshape(len(names), networks)
    found.columns = dict(zip(names, numbers, strict=True))
    return found


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def known(folder: Path, archs: Sequence[str], accuracies: Sequence[float]) -> Path:
    """A table of trained networks."""
    path = folder / "known.csv"
    lines = (f"{arch},{accuracy}" for arch, accuracy in zip(archs, accuracies, strict=True))
    path.write_text("\n".join(["arch,cifar10_test", *lines, ""]), encoding="utf-8")
    return path


def growing(store: Path, archs: Sequence[str]) -> Generator[int, None, None]:
    """A search that looks at one more network each time that it is asked to go on."""
    with Store.open(store) as opened_:
        run = begin(opened_)
        for step, arch in enumerate(archs):
            record(run, [arch], {"dextr": [float(step)]}, first=step)
            yield step + 1
