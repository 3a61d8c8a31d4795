"""Options of the commands that train networks on images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from epochzero.cli.console import err
from epochzero.cli.options import Classes, Device, Plugins, Seed, Threads, panel
from epochzero.data.image_folder import SIDE
from epochzero.quantities import key_values, skips
from epochzero.train.image_data import Images, load_images
from epochzero.train.recipes import RECIPES, Recipe, recipe_of


@panel("Training")
class TrainingOptions:
    recipe: Annotated[str, Option(help=f"Training recipe: {', '.join(RECIPES)}.")] = "default"
    epochs: Annotated[int | None, Option(help="Default: those of the recipe.")] = None
    batch_size: Annotated[int | None, Option(help="Default: that of the recipe.")] = None
    option: Annotated[list[str] | None, Option(help="Change the recipe: learning_rate=0.05. May be repeated.")] = None

    @property
    def changed(self) -> Recipe:
        """The recipe with all changes; `--option` overrides `--epochs` and `--batch-size`."""
        given = {"epochs": self.epochs, "batch_size": self.batch_size}
        changes = {name: value for name, value in given.items() if value is not None}
        return recipe_of(self.recipe, changes | key_values(self.option or []))


@panel("Data")
class ImageOptions:
    image_size: Annotated[int, Option(min=8, max=2048, help="Side that image files are scaled to.")] = SIDE
    unreadable: Annotated[str, Option(help="Unreadable image files: stop, or skip and list them.")] = "stop"
    classes: Classes = None

    def load(self, data: Path, seed: int) -> Images:
        """The images of `--data`; unreadable files are an error, or are skipped and listed."""
        skip = skips(self.unreadable)
        images = load_images(data, num_classes=self.classes, seed=seed, side=self.image_size, skip_unreadable=skip)
        for name in images.facts["unreadable"]:
            err.print(f"cannot be read, left out: {name}", style="yellow", soft_wrap=True)
        return images


@panel("Running")
class RunOptions:
    seed: Seed = 0
    device: Device = "cpu"
    threads: Threads = None
    plugin: Plugins = None
