"""`epochzero predict`: the classes of image files; also the old spelling of `epochzero recommend predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from epochzero.cli.console import err, out, print_json, progress_bar
from epochzero.cli.options import AsJson, BadLines, Device, Threads
from epochzero.cli.recommend.old_spelling import predict as predict_clicks
from epochzero.recommend.recommender import holds_recommender


def predict(
    model: Annotated[Path, Option("--model", help="Folder of `epochzero train`, `ensemble` or `export`.")],
    data: Annotated[Path, Option("--data", help="An image file, or a folder of them.")],
    file: Annotated[Path, Option("--out", help="CSV file to write: file, class, probability, why, and each class.")],
    unreadable: Annotated[
        str, Option("--unreadable", help="Unreadable image files: stop, or skip and list them.")
    ] = "stop",
    batch_size: Annotated[int, Option("--batch-size", min=1, max=10**5, help="Images at a time.")] = 64,
    bad_lines: BadLines = "strict",
    device: Device = "cpu",
    threads: Threads = None,
    json: AsJson = False,
) -> None:
    """Predict the class of every image in a folder, by a trained network or an exported product.

    epochzero predict --model trained --data photos --out predictions.csv

    Images are prepared as in training. An exported product is run by ONNX Runtime. Clicks are predicted by `epochzero
    recommend predict`.
    """
    if holds_recommender(model):
        predict_clicks(model=model, data=data, file=file, bad_lines=bad_lines, device=device, json=json)
        return
    from epochzero.export.predict import predict as predict_

    with progress_bar("predict") as bar:
        found = predict_(model, data, unreadable=unreadable, batch_size=batch_size, device=device, progress=bar)
    found.write(file)
    if json:
        facts = {"images": len(found), "classes": found.classes, "unreadable": found.unreadable, "file": str(file)}
        print_json(facts)
        return
    for name, why in found.unreadable.items():
        err.print(f"cannot be read: {name} ({why})", style="yellow", soft_wrap=True)
    out.print(f"{len(found):,} images predicted: {file}")
