"""Count the functions and files of ours that one `epochzero search` runs: how far a newcomer has to walk.

    python benchmarks/walk.py                         # epochzero search --budget 1, on nb201
    python benchmarks/walk.py --list search --space darts --budget 1

A function counts once, when it is called at least once; a file counts when one of its functions is called. Module and
class bodies, comprehensions and generator expressions do not count.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections import defaultdict
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

INSIDE = ("<module>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
CLASS_BODY_FLAG = 0x2
"""CO_NEWLOCALS together with CO_OPTIMIZED (0x1) marks functions; a class body lacks CO_OPTIMIZED"""


def walked(arguments: list[str]) -> dict[Path, set[str]]:
    """The functions that the command calls, by file."""
    import epochzero

    root = Path(epochzero.__file__).parent
    codes: set[CodeType] = set()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    from epochzero.cli import main

    sys.argv[1:] = arguments
    sys.setprofile(profile)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            main()
    except SystemExit as stop:
        if stop.code:
            raise
    finally:
        sys.setprofile(None)
    called: dict[Path, set[str]] = defaultdict(set)
    for code in codes:
        file = Path(code.co_filename)
        if file.is_relative_to(root) and code.co_name not in INSIDE and code.co_flags & 1:
            called[file.relative_to(root)].add(f"{code.co_firstlineno} {code.co_qualname}")
    return called


def main() -> None:
    arguments = sys.argv[1:]
    listed = arguments[:1] == ["--list"]
    called = walked(arguments[listed:] or ["search", "--budget", "1"])
    if listed:
        for file, functions in sorted(called.items()):
            print(f"{file}: {len(functions)}")
            for function in sorted(functions, key=lambda text: int(text.split()[0])):
                print(f"    {function}")
    print(f"{sum(map(len, called.values()))} functions in {len(called)} files")


if __name__ == "__main__":
    main()
