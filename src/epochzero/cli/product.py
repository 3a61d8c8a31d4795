"""What the commands that write products share: options they refuse, progress, and what they say in the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from epochzero.cli.console import err, out, print_json
from epochzero.errors import UserError
from epochzero.export.product import Exported

Say = Callable[[str], None]


def refuse(unused: Mapping[str, object], whole: str) -> None:
    """UserError for options that were given although the folder answers them; `whole` names it."""
    for option, value in unused.items():
        if value is not None:
            raise UserError(f"{whole} says what it is: leave {option} out.")


def made_with(write: Callable[[Say], Exported]) -> Exported:
    """What `write` makes, with a line on the screen of what it is at."""
    with err.status("export") as status:
        return write(lambda what: status.update(f"export  {what}"))


def tell(
    made: Exported, facts: Mapping[str, Any], archs: Sequence[str], lines: Sequence[str], folder: Path, *, json: bool
) -> None:
    """Print facts and checks as JSON, or architectures, lines about them, and where the files are."""
    if json:
        errors = {"model.py": made.code_error, "model.onnx": made.onnx_error}
        latency = None if made.latency is None else made.latency._asdict()
        print_json({**facts, "files": [str(file) for file in made.files], "errors": errors, "latency_ms": latency})
        return
    for arch in archs:
        out.print(arch, style="bold")
    out.print()
    for line in lines:
        out.print(line)
    if made.onnx_error is not None:
        out.print(f"onnx     differs by {made.onnx_error:.2g} at most; {made.latency} for one sample")
    err.print(f"product  {folder}/{', '.join(file.name for file in made.files)}", soft_wrap=True)
