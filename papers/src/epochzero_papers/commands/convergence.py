"""`epochzero analyze convergence`: a cell and its variants, trained alike on real images."""

from __future__ import annotations

import json as json_
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from epochzero.cli.analyze.subjects import Across, say_written
from epochzero.cli.console import err, out, print_json
from epochzero.cli.options import AsJson, BatchSize, Device, Seed, panel, spread
from epochzero.engine.device import usable
from epochzero.errors import UserError
from epochzero.files import made_folder
from epochzero.train.image_data import load_images
from epochzero_papers.thesis import convergence_pictures
from epochzero_papers.thesis.convergence import Study, study_convergence


@panel("Networks")
class NetworkOptions:
    """The cell and the size of its networks."""

    arch: Annotated[str, typer.Option("--arch", help="A known cell or an architecture.")] = "DARTS"
    space: Annotated[str, typer.Option("--space", help="Space of the cell: darts, nb201, nb101 or nb101_16.")] = (
        Study.space
    )
    channels: Annotated[int, typer.Option("--channels", min=1, help="Of the first cells, on darts.")] = Study.channels
    cells: Annotated[int, typer.Option("--cells", min=1, help="Cells of a network, on darts.")] = Study.cells


@panel("Training")
class TrainingOptions:
    """The data and the training of the networks."""

    data: Annotated[Path | None, typer.Option("--data", help="Images: an .npz file, CIFAR, or a folder.")] = None
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Epochs of each training.")] = Study.epochs
    batch_size: BatchSize = Study.batch_size
    across: Across = Study.across
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Draws of the weights.")] = 1
    seed: Seed = 0
    device: Device = "cpu"


@panel("Output")
class OutputOptions:
    """The folder of the study."""

    out_dir: Annotated[Path, typer.Option("--out", help="Folder for JSON, PNG and SVG; the same command resumes.")]
    drawn: Annotated[Path | None, typer.Option("--from", help="Draw this JSON file, and train nothing.")] = None
    json: AsJson = False


@spread
def convergence(cell: NetworkOptions, training: TrainingOptions, output: OutputOptions) -> None:
    """A cell and variants of it, narrower ones and ones with other operations, trained alike on real images.

    epochzero analyze convergence --arch DARTS --data cifar10.npz --out study

    A module of your own has no variants: analyze it with landscape, gradient-variance, features, curve.
    """
    if (training.data is None) == (output.drawn is None):
        raise UserError("Give either --data to train on, or --from FILE.json to draw.")
    usable(training.device)
    folder = made_folder(output.out_dir)
    if training.data is None:
        assert output.drawn is not None
        result = _read_study(output.drawn)
    else:
        sizes = asdict(cell) | {name: getattr(training, name) for name in ("epochs", "batch_size", "seeds", "seed")}
        study = Study(across=training.across, noise_across=min(training.across, Study.noise_across), **sizes)
        images = load_images(training.data, seed=training.seed)
        result = study_convergence(study, images, folder / "convergence.json", training.device, err.print)
    files = [str(folder / file) for file in convergence_pictures.draw(result, folder)]
    last = result["curves"][-1]["test_accuracy"]
    rows = [one | {"test_accuracy": last[place]} for place, one in enumerate(result["networks"])]
    if output.json:
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
