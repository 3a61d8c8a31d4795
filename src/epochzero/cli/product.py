"""Refused options, status and output of the commands that write products."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from epochzero.cli.console import err, out, print_json
from epochzero.errors import UserError
from epochzero.export.product import Exported
from epochzero.stats.share import share_interval, share_text

Say = Callable[[str], None]


def refuse(unused: Mapping[str, object], whole: str) -> None:
    """UserError for options that were given although the folder at `whole` determines them."""
    for option, value in unused.items():
        if value is not None:
            raise UserError(f"{whole} determines this: leave {option} out.")


def with_status(write: Callable[[Say], Exported]) -> Exported:
    """The result of `write`, with its current step on the screen."""
    with err.status("export") as status:
        return write(lambda step: status.update(f"export  {step}"))


def accuracy_json(right: tuple[int, int] | None) -> dict[str, float] | None:
    """An accuracy with its interval as JSON fields."""
    if right is None:
        return None
    low, high = share_interval(*right)
    return {"value": right[0] / right[1], "low": low, "high": high, "images": right[1]}


def show_product(
    made: Exported, facts: Mapping[str, Any], archs: Sequence[str], lines: Sequence[str], folder: Path, *, json: bool
) -> None:
    """Prints facts and checks as JSON, or architectures, lines about them, and the paths of the files."""
    if json:
        errors = {"model.py": made.code_error, "model.onnx": made.onnx_error}
        latency = None if made.latency is None else made.latency._asdict()
        errors |= {one.file: one.error for one in made.further}
        further = {
            one.file: {"latency_ms": one.latency._asdict(), "accuracy": accuracy_json(one.accuracy)}
            for one in made.further
        }
        own = {"errors": errors, "latency_ms": latency, "accuracy": accuracy_json(made.accuracy), "further": further}
        print_json({**facts, "files": [str(file) for file in made.files], **own})
        return
    for arch in archs:
        out.print(arch, style="bold")
    out.print()
    for line in lines:
        out.print(line)
    if made.onnx_error is not None:
        out.print(f"onnx     differs by {made.onnx_error:.2g} at most; {made.latency} for one sample")
    if made.accuracy is not None:
        out.print(f"accuracy {share_text(*made.accuracy)} of {made.accuracy[1]:,} test images")
    for one in made.further:
        right = "" if one.accuracy is None else f"; accuracy {share_text(*one.accuracy)}"
        out.print(f"{one.file}  differs by {one.error:.2g} at most; {one.latency} for one sample{right}")
    err.print(f"product  {folder}/{', '.join(file.name for file in made.files)}", soft_wrap=True)
