"""Search inside one network that holds all others of a space: NASI or Zero-Cost-PT.

    python -m epochzero.run.inside --method nasi --space darts --steps 100 --data cifar10.npz --out nasi.json
    python -m epochzero.run.inside --method zero_cost_pt --space darts --option proxy=dextr --batch-size 16 --out a.json

Needs torch and numpy alone. The file says what was found, and how; while the search runs it holds where it stands. The
same command goes on where one was stopped, or further with more --steps.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from epochzero import data
from epochzero.bare import command
from epochzero.engine.device import default_device, machine, usable
from epochzero.engine.precision import set_precision
from epochzero.errors import UserError
from epochzero.files import write
from epochzero.quantities import shape
from epochzero.registry import spaces
from epochzero.supernet import State, make

EVERY = 5.0
"""seconds between two lines of progress, and between two saved states"""


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m epochzero.run.inside", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--method", default="nasi", help="nasi or zero_cost_pt; default: nasi")
    parser.add_argument("--space", default="nb201")
    parser.add_argument("--steps", type=int, help="default: as many as the paper takes")
    parser.add_argument("--data", default="pink")
    parser.add_argument("--data-seed", type=int, default=0)
    parser.add_argument("--parts", type=int, default=100, help="batches of data, used in turn; default: 100")
    parser.add_argument("--input-shape", help="of one sample of noise: 3,32,32")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default=default_device())
    parser.add_argument("--tf32", action="store_true", help="let cuDNN and cuBLAS round factors to TF32")
    parser.add_argument("--option", action="append", default=[], help="of the method: key=value; may be given often")
    parser.add_argument("--out", type=Path, required=True, help="the result, a JSON file")
    return parser


def search(asked: argparse.Namespace) -> None:
    """Search, and write what was found and how long it took."""
    if asked.out.suffix != ".json":
        raise UserError(f"--out takes a name that ends with .json, not '{asked.out}'.")
    set_precision(asked.tf32)
    usable(asked.device)
    space, given = spaces[asked.space], dict(map(pair, asked.option))
    file = Saved(asked.out)
    native = space.plan(space.smallest())
    sizes = shape(asked.input_shape) or (native.input_shape if asked.data in data.NOISE else None)
    batch = data.load(
        asked.data,
        input_shape=sizes,
        size=asked.batch_size,
        parts=asked.parts,
        seed=asked.data_seed,
    )
    method = make(asked.method, space, batch, asked.seed, asked.device, given)
    steps = method.steps if asked.steps is None else asked.steps
    start = time.perf_counter()
    found = method.run(steps, Progress(file, steps, method.standing), file.state)
    seconds = file.seconds + time.perf_counter() - start
    file.write(
        {
            "arch": space.text(found.arch),
            "steps": found.steps,
            "seconds": seconds,
            "weights": found.weights,
            "trajectory": found.trajectory,
            "data": batch.about,
            "machine": machine(asked.device),
            "state": found.state,
        }
    )
    print(space.text(found.arch), flush=True)


def pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"--option takes key=value, not '{text}'.")
    return key.strip(), value.strip()


class Saved:
    """The result's file, which holds a search that is not at its end too."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state: State | None = None
        self.seconds = 0.0
        """that the search took before"""
        if path.exists():
            try:
                found = json.loads(path.read_text(encoding="utf-8"))
                self.state, self.seconds = dict(found["state"]), float(found["seconds"])
            except (ValueError, KeyError, TypeError):
                raise UserError(f"{path} holds no search to go on with: choose another --out, or remove it.") from None

    def write(self, content: dict[str, Any]) -> None:
        """All at once: a reader never sees half of it."""
        write(self.path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


class Progress:
    """Lines on standard error, and the state in the file."""

    def __init__(self, file: Saved, steps: int, standing: Callable[[State], str] | None = None) -> None:
        self.file, self.steps, self.standing = file, steps, standing
        self.begun = self.said = time.perf_counter()

    def __call__(self, state: State) -> None:
        now = time.perf_counter()
        if now - self.said < EVERY:
            return
        self.said = now
        about = "" if self.standing is None else f", {self.standing(state)}"
        print(f"{state['step']}/{self.steps} steps in {now - self.begun:.0f} s{about}", file=sys.stderr, flush=True)
        self.file.write({"seconds": self.file.seconds + now - self.begun, "state": state})


def main() -> None:
    """Search as the command line says."""
    search(options().parse_args())


if __name__ == "__main__":
    command(main)
