"""`epochzero predict`: clicks for every line of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from epochzero.cli.console import err, out, print_json, progress_bar
from epochzero.cli.options import AsJson, BadLines, Device
from epochzero.cli.recommender import mode_of
from epochzero.engine.device import usable
from epochzero.recommend.recommender import Recommender
from epochzero.recommend.training.predict import predict as predict_


def predict(
    model: Annotated[
        Path, typer.Option("--model", help="Folder of `epochzero train` on a table of clicks, or of its export.")
    ],
    data: Annotated[Path, typer.Option("--data", help="A table as the one that was trained on; needs no label.")],
    file: Annotated[Path, typer.Option("--out", help="The CSV file to write: line, probability and why not.")],
    bad_lines: BadLines = "strict",
    device: Device = "cpu",
    json: AsJson = False,
) -> None:
    """Predict how likely a click is for every line of a table.

    epochzero predict --model run --data new.csv --out predictions.csv --bad-lines skip

    The table may be larger than memory. Values that were not there in training count as unseen ones. With --bad-lines
    skip, a bad line gets no probability and says why; otherwise it stops everything, and an older file stays as it was.
    """
    mode = mode_of(bad_lines)
    usable(device)
    kept = Recommender.read(model)
    network = kept.module().to(device)
    with progress_bar("predict") as bar:
        rows, bad = predict_(
            network, data, kept.encoding, file, bad_lines=mode, tell=lambda done: bar(done, done, "rows")
        )
    if json:
        print_json({"rows": rows, "bad_lines": bad, "file": str(file), "space": kept.space, "arch": kept.arch})
        return
    out.print(f"{rows:,} rows predicted: {file}")
    if bad:
        err.print(f"{bad:,} bad lines have no probability", style="yellow")
