"""Compares the scores of two versions of the code, digit by digit: one network at a time on a CPU with one thread.

    PYTHONPATH=OLD/src python benchmarks/same_digits.py --save reference.json
    PYTHONPATH=NEW/src python benchmarks/same_digits.py --against reference.json
    PYTHONPATH=NEW/src python benchmarks/same_digits.py --against reference.json --quick

40 networks of each of ten spaces and six modules are scored with every proxy, on small inputs: about ten minutes of one
core. The architectures are in the reference, and the samplers are compared too. Prints the differences by space and
proxy, and ends with 1 if there are any. Both versions have to run on the same machine with the same torch.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

import epochzero as ez
from epochzero import data

Digits = list[str]
"""status, and the value in hexadecimal"""
Row = tuple[str, str, dict[str, Digits]]
"""space, architecture, digits by proxy"""
MISSING: Digits = ["missing", ""]
FEW = {"sigeo": "sigeo(batches=2)", "swap": "swap(repeats=1,samples=4)", "swap_reg": "swap_reg(repeats=1,samples=4)"}


@dataclass(frozen=True)
class Case:
    """A space, the shape and size of a batch, and the number of samples from which the smallest networks are chosen."""

    space: str
    shape: tuple[int, ...]
    size: int
    drawn: int = 40
    kind: str = "pink"
    quick: int = 2
    """networks of a quick comparison"""


CASES = (
    Case("nb201", (3, 8, 8), 16),
    Case("nb101_stem16", (3, 8, 8), 8),
    Case("darts_search", (3, 8, 8), 8),
    Case("nats_sss", (3, 8, 8), 8),
    Case("transnas_micro", (3, 64, 64), 4, drawn=80, quick=1),
    Case("autoformer_tiny", (3, 32, 32), 4, drawn=120, quick=1),
    Case("mobilenet", (3, 48, 48), 4, drawn=2000, quick=1),
    Case("resnet", (3, 16, 16), 8, drawn=800),
    Case("nasrec_small", (39,), 16, kind="white"),
    Case("mlp", (3, 8, 8), 16),
)


class Residual(nn.Module):
    """Convolutions, batch norm and a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.conv = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1, bias=False)
        self.norm, self.head = nn.BatchNorm2d(6), nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        x = torch.relu(x + self.norm(self.conv(x)))
        out: Tensor = self.head(x.mean((2, 3)))
        return out


class Attention(nn.Module):
    """A transformer layer over patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.layer(self.patches(x).flatten(2).mT).mean(1))
        return out


class Recurrent(nn.Module):
    """An LSTM over the rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(24, 7, batch_first=True), nn.Linear(7, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.lstm(x.permute(0, 2, 1, 3).flatten(2))[0][:, -1])
        return out


class Clicks(nn.Module):
    """Dense features and ids, two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.dense, self.head = nn.Embedding(20, 4), nn.Linear(5, 4), nn.Linear(8, 2)

    def forward(self, dense: Tensor, ids: Tensor) -> dict[str, Tensor]:
        return {"logits": self.head(torch.relu(torch.cat([self.dense(dense), self.table(ids).sum(1)], 1)))}


MODULES: dict[str, Callable[[], nn.Module]] = {
    "residual": Residual,
    "group_norm": lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 8, 3), nn.ReLU(inplace=True),
        nn.Flatten(), nn.Linear(8, 10),
    ),
    "perceptron": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 10)
    ),
    "attention": Attention,
    "recurrent": Recurrent,
    "clicks": Clicks,
}  # fmt: skip


def texts_of(names: list[str], case: str) -> list[str]:
    """The proxies; `swap` draws its weights once, and `sigeo` takes two batches, but for one space."""
    return [FEW.get(name, name) for name in names] + (list(FEW) if case == "nb201" else [])


def scores(texts: list[str], network: Any, **options: Any) -> dict[str, Digits]:
    """Status and digits of each proxy; a proxy that raises has the name of its error."""
    try:
        values = ez.score(network, texts, **options).values()
    except Exception as error:
        if len(texts) == 1:
            return {texts[0]: ["raised", type(error).__name__]}
        return {text: one for text in texts for one in scores([text], network, **options).values()}
    return {text: [one.status, digits(one.value)] for text, one in zip(texts, values, strict=True)}


def digits(value: float) -> str:
    return "nan" if math.isnan(value) else float(value).hex()


def sampled(case: Case, networks: int) -> list[str]:
    """The texts of the first architectures that the space samples."""
    space, rng = ez.space(case.space), Random(0)
    archs = [space.sample(rng) for _ in range(networks)]
    return [space.text(arch) for arch in archs]


def smallest(case: Case, networks: int) -> list[str]:
    """The texts of the smallest networks among `case.drawn` samples."""
    space = ez.space(case.space)
    texts = sampled(case, max(case.drawn, networks))
    if case.drawn > networks:
        texts.sort(key=lambda text: space.plan(space.parse(text), 10, case.shape).flops)
    return texts[:networks]


def rows(names: list[str], texts: dict[str, list[str]]) -> Iterator[Row]:
    """Scores all modules, and the architectures of each space."""
    for name, make in MODULES.items():
        torch.manual_seed(0)
        module, rng = make(), torch.Generator().manual_seed(1)
        x, y = torch.randn(32, 3, 8, 8, generator=rng), torch.randint(0, 10, (32,), generator=rng)
        options: dict[str, Any] = {"data": x, "y": y, "batch_size": 8}
        if name == "clicks":
            ids = torch.randint(0, 20, (32, 3), generator=rng)
            options |= {"data": {"dense": x.flatten(1)[:, :5], "ids": ids}, "y": y % 2, "output": "logits"}
        yield "modules", name, scores(texts_of(names, "modules"), module, **options)
    for case in CASES:
        classes = 1 if case.space.startswith("nasrec") else 10
        batch = data.load(case.kind, input_shape=case.shape, num_classes=classes, size=case.size, parts=4)
        print(f"{case.space} ...", file=sys.stderr)
        for text in texts[case.space]:
            yield case.space, text, scores(texts_of(names, case.space), text, space=case.space, data=batch)


def compare(reference: dict[str, Any], networks: int, quick: bool) -> int:
    """Prints the differences, and returns their number."""
    different: dict[tuple[str, str], list[str]] = defaultdict(list)
    counted: dict[str, int] = defaultdict(int)
    for case in CASES:
        if sampled(case, 40) != reference["sampled"][case.space]:
            different[case.space, "(sampler)"].append("architectures")
    known: dict[tuple[str, str], dict[str, Digits]] = {(space, text): old for space, text, old in reference["rows"]}
    texts = {case.space: [text for space, text in known if space == case.space] for case in CASES}
    chosen = {case.space: texts[case.space][: case.quick if quick else networks] for case in CASES}
    names = [text.partition("(")[0] for text in known["modules", "residual"]]
    for space, text, new in rows(names, chosen):
        old = known[space, text]
        counted[space] += 1
        for name in sorted(old.keys() | new.keys()):
            before, now = old.get(name, MISSING), new.get(name, MISSING)
            if before != now:
                different[space, name].append(f"{text[:70]}: {shown(before)}, now {shown(now)}")
    for (space, name), lines in sorted(different.items()):
        print(f"{space:16} {name:26} {len(lines):3}, as {lines[0]}")
    total = sum(map(len, different.values()))
    print(f"{sum(counted.values())} networks ({', '.join(f'{n} {space}' for space, n in counted.items())})")
    print(f"{len(names)} proxies, {total} differences")
    return total


def shown(one: Digits) -> str:
    status, value = one
    return repr(float.fromhex(value)) if status == "ok" else f"{status} {value}"


def main() -> None:
    """Saves the scores, or compares with those that were saved."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--save", type=Path)
    given.add_argument("--against", type=Path)
    parser.add_argument("--networks", type=int, default=40, help="of each space")
    parser.add_argument("--quick", action="store_true", help="one or two networks of each space")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    print(Path(ez.__file__ or "").parent, flush=True)
    if asked.save:
        plain = {case.space: sampled(case, 40) for case in CASES}
        done = list(rows(ez.list_proxies(), {case.space: smallest(case, asked.networks) for case in CASES}))
        asked.save.write_text(json.dumps({"sampled": plain, "rows": done}))
    failed = compare(json.loads(asked.against.read_text()), asked.networks, asked.quick) if asked.against else 0
    print(f"{time.perf_counter() - start:.0f} s, {time.process_time():.0f} s of CPU")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
