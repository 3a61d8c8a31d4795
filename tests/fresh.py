"""Programs in processes of their own, which find torch loaded: that takes longer than most of them run.

A process that has torch and nothing of ours waits for programs, and forks for each. Then they are on their own:
whatever else they import is imported there, and `bare` lets them import what a bare machine has.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import epochzero

WAITING = """
import json, os, sys
import torch

for line in iter(sys.stdin.readline, ""):
    program, sys.argv[1:], files, folder = json.loads(line)
    child = os.fork()
    if child == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
for number, file in enumerate(files):
    os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), number)
os.chdir(folder)
exec(compile(program, "program", "exec"), {"__name__": "__main__"})
"""
BARE = """
import sys

absent = "scipy typer rich click pyarrow polars matplotlib PIL sklearn safetensors onnx bayes_opt optuna ray".split()
assert not {*absent} & {*sys.modules}
sys.modules.update(dict.fromkeys(absent))
"""


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Fresh:
    """`fresh(program, *arguments)` runs a program in a fork of a process that has loaded torch alone."""

    def __init__(self, folder: Path) -> None:
        self.files = [folder / name for name in ("nothing", "out", "err")]
        self.waiting = subprocess.Popen(
            [sys.executable, "-c", WAITING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, program: str, *arguments: object, folder: Path | None = None) -> Done:
        assert self.waiting.stdin is not None and self.waiting.stdout is not None
        for file in self.files:
            file.write_bytes(b"")
        told = [program, [*map(str, arguments)], [*map(str, self.files)], str(folder or Path.cwd())]
        self.waiting.stdin.write(json.dumps(told) + "\n")
        self.waiting.stdin.flush()
        code = int(self.waiting.stdout.readline())
        return Done(code, *(file.read_text(encoding="utf-8") for file in self.files[1:]))

    def module(self, name: str, *arguments: object, folder: Path | None = None) -> Done:
        """`python -m name`, with our own packages in reach."""
        paths = [str(folder) for folder in (Path(epochzero.__file__).parents[1], Path(__file__).parents[1])]
        program = f"import runpy, sys; sys.path[:0] = {paths}; runpy.run_module({name!r}, run_name='__main__')"
        return self(program, *arguments, folder=folder)

    def bare(self, program: str, *arguments: object) -> Done:
        """The same with torch and numpy alone: the rest of what may be installed cannot be imported."""
        return self(BARE + program, *arguments)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.waiting.__exit__(kind, error, trace)
