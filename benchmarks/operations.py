"""Torch operations of one network: `python benchmarks/operations.py [--only "one batch"] [--where alone]`.

On a GPU each is a kernel at least, views not counted, and each read of a value waits for the GPU; both are counted on a
CPU with narrow inputs. `--where WAY` lists the lines of code that call most of them.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import epochzero
from epochzero import data
from epochzero.engine import Proxy, postponed
from epochzero.engine.population import columns
from epochzero.engine.population.population import Population
from epochzero.engine.score import score_network, score_together
from epochzero.engine.space_networks import network_of
from epochzero.evaluate.speed import mbconv
from epochzero.objectives.bundles import groups
from epochzero.plan import init
from epochzero.registry import spaces

SPACES = {"darts": 32, "mobilenet": 64, "nb101": 32, "autoformer_tiny": 32, "mbconv": 32, "mbconv_modules": 32}
"""with the height of their images"""
FREE = ("aten::detach", "aten::_unsafe_view", "aten::alias")
READS = ("aten::_local_scalar_dense", "aten::equal", "aten::nonzero", "aten::is_nonzero")
HOST = "plan/init.py"
"""draws weights on the host, which are copied together"""
SOURCE = str(Path(epochzero.__file__).parent)


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations, by name and by line."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: Counter[str] = Counter()
        self.lines: Counter[str] = Counter()
        self.views = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.name()
        if function.is_view or name.startswith(FREE) or (line := _caller()).startswith(HOST):
            self.views += 1
        else:
            self.names[name] += 1
            self.lines[f"{line} {name}"] += 1
        return function(*args, **(kwargs or {}))

    @property
    def reads(self) -> int:
        return sum(count for name, count in self.names.items() if name.startswith(READS))


def _caller() -> str:
    """The innermost line of the package."""
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(SOURCE):
            return f"{file[len(SOURCE) + 1 :]}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "?"


def counted(name: str, members: list[Proxy], way: str) -> Operations | None:
    """The operations of the second of two networks, with no weight drawn before."""
    size = SPACES[name]
    space, batch = spaces[name], data.load("pink", input_shape=(3, size, size), num_classes=10, size=2)
    rng = Random(0)
    space.sample(rng)
    network = network_of(space, space.sample(rng), batch)
    if way == "tape" and not Population.fits([network]):
        return None
    init._drawn.__init__(most_bytes=2**28)  # type: ignore[misc]
    network.params  # noqa: B018
    counter = Operations()
    with counter:
        if way == "tape":
            score_together([network], members, batch, 0)  # type: ignore[list-item]
        else:
            score_network(network, members, batch, 0)
    return counter


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="one batch,dextr")
    parser.add_argument("--spaces", default=",".join(SPACES))
    parser.add_argument("--ways", default="alone,tape")
    parser.add_argument("--where", type=int, default=0, help="lines of code to list")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    postponed.POSTPONE_ON = columns.LISTS_ON = {"cpu"}  # as on a GPU
    mbconv.register()
    print(f"{'':16} {'':14} {'':6} {'operations':>10} {'views':>7} {'reads':>6}")
    for only, members in groups(asked.only).items():
        for name in asked.spaces.split(","):
            for way in asked.ways.split(","):
                if (found := counted(name, members, way)) is not None:
                    total = sum(found.names.values())
                    print(f"{name:16} {only:14} {way:6} {total:10,} {found.views:7,} {found.reads:6,}", flush=True)
                    for line, count in found.lines.most_common(asked.where):
                        print(f"    {count:6,} {line}")


if __name__ == "__main__":
    main()
