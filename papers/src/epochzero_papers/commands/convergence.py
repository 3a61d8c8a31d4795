"""`epochzero analyze convergence`: a cell and its variants, trained alike on real images."""

from __future__ import annotations

import json as json_
from pathlib import Path
from typing import Annotated, Any

import typer

from epochzero.cli.analyze.subjects import Across, say_written
from epochzero.cli.console import err, out, print_json
from epochzero.cli.options import AsJson, BatchSize, Device, Seed
from epochzero.engine.device import usable
from epochzero.errors import UserError
from epochzero.files import made_folder
from epochzero.train.image_data import load_images
from epochzero_papers.thesis import convergence_pictures
from epochzero_papers.thesis.convergence import Study, study_convergence


def convergence(
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for JSON, PNG and SVG; the same command goes on.")],
    data: Annotated[Path | None, typer.Option("--data", help="Images: an .npz file, CIFAR, or a folder.")] = None,
    arch: Annotated[str, typer.Option("--arch", help="A known cell or an architecture.")] = "DARTS",
    space: Annotated[str, typer.Option("--space", help="Of the cell: darts, nb201, nb101 or nb101_16.")] = Study.space,
    channels: Annotated[int, typer.Option("--channels", min=1, help="At first, on darts.")] = Study.channels,
    cells: Annotated[int, typer.Option("--cells", min=1, help="In each network, on darts.")] = Study.cells,
    epochs: Annotated[int, typer.Option("--epochs", min=1)] = Study.epochs,
    batch_size: BatchSize = Study.batch_size,
    across: Across = Study.across,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Draws of the weights.")] = 1,
    drawn: Annotated[Path | None, typer.Option("--from", help="Draw what is in this JSON, and train nothing.")] = None,
    seed: Seed = 0,
    device: Device = "cpu",
    json: AsJson = False,
) -> None:
    """A cell and variants of it, narrower ones and ones with other operations, trained alike on real images.

    epochzero analyze convergence --arch DARTS --data cifar10.npz --out study

    A module of your own has no variants: analyze it with landscape, gradient-variance, features, curve.
    """
    if (data is None) == (drawn is None):
        raise UserError("Give either --data to train on, or --from FILE.json to draw.")
    usable(device)
    folder = made_folder(out_dir)
    if drawn is not None:
        result = _read_study(drawn)
    else:
        study = Study(
            arch=arch, space=space, channels=channels, cells=cells, epochs=epochs, batch_size=batch_size, seeds=seeds,
            seed=seed, across=across, noise_across=min(across, Study.noise_across),
        )  # fmt: skip
        assert data is not None
        result = study_convergence(study, load_images(data, seed=seed), folder / "convergence.json", device, err.print)
    files = [str(folder / file) for file in convergence_pictures.draw(result, folder)]
    last = result["curves"][-1]["test_accuracy"]
    rows = [one | {"test_accuracy": last[place]} for place, one in enumerate(result["networks"])]
    if json:
        print_json({"networks": rows, "files": files})
        return
    for row in rows:
        accuracy = "none" if row["test_accuracy"] is None else f"{100 * row['test_accuracy']:.2f} %"
        out.print(f"{row['name']:10} {row['width']:g}c {row['depth']}  rate {row['rate']:<7g} test accuracy {accuracy}")
    say_written(files)


def _read_study(file: Path) -> dict[str, Any]:
    """Returns a study of convergence from its file."""
    try:
        content = json_.loads(file.read_text(encoding="utf-8"))
        content["networks"], content["curves"]
    except OSError as error:
        raise UserError(f"'{file}' cannot be read ({error.strerror}): give what `analyze convergence` wrote.") from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"'{file}' holds no study of convergence: give what `analyze convergence` wrote.") from None
    return dict(content)
