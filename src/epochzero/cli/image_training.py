"""Options of the commands that train networks on images, and how their values are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from epochzero.cli.console import err
from epochzero.errors import UserError
from epochzero.quantities import key_values
from epochzero.registry import spaces
from epochzero.spaces.base import Space
from epochzero.train.image_data import Images, load_images
from epochzero.train.recipes import RECIPES

RecipeName = Annotated[str, typer.Option("--recipe", help=f"How to train: {', '.join(RECIPES)}.")]
Epochs = Annotated[int | None, typer.Option("--epochs", help="Default: as many as the recipe has.")]
OwnBatchSize = Annotated[int | None, typer.Option("--batch-size", help="Default: that of the recipe.")]
RecipeChanges = Annotated[
    list[str] | None, typer.Option("--option", help="Change the recipe: learning_rate=0.05. May be repeated.")
]
ImageSize = Annotated[int, typer.Option("--image-size", min=8, max=2048, help="Side that image files are scaled to.")]
Unreadable = Annotated[
    str, typer.Option("--unreadable", help="Of image files that cannot be read: stop, or skip and name them.")
]


def changes(epochs: int | None, batch_size: int | None, option: list[str] | None) -> dict[str, int | float | str]:
    """What is to be changed in a recipe, by name; a later `--option` has the last word."""
    given = {"epochs": epochs, "batch_size": batch_size}
    return {name: value for name, value in given.items() if value is not None} | key_values(option or [])


def space_of_plans(name: str) -> Space:
    """A space by its name; UserError for one whose networks are foreign modules."""
    space = spaces[name]
    if not isinstance(space, Space):
        raise UserError(f"The space '{name}' gives modules and no plans: train them with your own loop.")
    return space


def images_from(data: Path, classes: int | None, seed: int, side: int, unreadable: str) -> Images:
    """The images of `--data`; those that cannot be read stop the command, or are named and left out."""
    if unreadable not in ("stop", "skip"):
        raise UserError(f"--unreadable takes stop or skip, not {unreadable!r}.")
    images = load_images(data, num_classes=classes, seed=seed, side=side, skip_unreadable=unreadable == "skip")
    for name in images.facts["unreadable"]:
        err.print(f"cannot be read, left out: {name}", style="yellow", soft_wrap=True)
    return images
