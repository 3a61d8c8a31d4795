"""`epochzero recommend predict`: the probability of a click for every line of a table."""

from __future__ import annotations

from dataclasses import asdict
from json import loads
from pathlib import Path
from typing import Annotated

import typer

from epochzero import recommend
from epochzero.cli.console import err, out, print_json
from epochzero.cli.options import AsJson, BadLines, Device
from epochzero.cli.recommend.options import remarks_shown, shown_progress


def predict(
    model: Annotated[Path, typer.Option("--model", help="Folder of `epochzero recommend train`, or of its export.")],
    data: Annotated[Path, typer.Option("--data", help="A table with the columns of training; needs no label.")],
    file: Annotated[Path, typer.Option("--out", help="CSV file to write: line, probability and why.")],
    bad_lines: BadLines = "strict",
    device: Device = "cpu",
    json: AsJson = False,
) -> None:
    """Predict how likely a click is for every line of a table.

    epochzero recommend predict --model run --data new.csv --out predictions.csv --bad-lines skip

    The table may be larger than memory. A column with many more missing or unseen values than in training is named, and
    a table without any known value refused. With --bad-lines skip, a bad line gets no probability and says why;
    otherwise it stops the command, and an older file stays as it was.
    """
    with remarks_shown(), shown_progress("predict") as bar:
        done = recommend.predict(model, data, file, bad_lines=bad_lines, device=device, progress=bar)
    if json:
        facts = loads((model / "recommender.json").read_text(encoding="utf-8"))
        network = {name: facts[name] for name in ("space", "arch")}
        print_json(asdict(done) | {"file": str(file), **network})
        return
    out.print(f"{done.rows:,} rows predicted: {file}")
    if done.bad_lines:
        err.print(f"{done.bad_lines:,} bad lines have no probability", style="yellow")
