"""Options that the steps of `epochzero recommend` share."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from epochzero.cli.console import err, progress_bar
from epochzero.cli.options import Device, Seed, panel
from epochzero.progress import Lines, Progress
from epochzero.quantities import key_values

LINES_EVERY = 10.0
"""seconds between lines of progress where there is no terminal"""

SearchedData = Annotated[
    str,
    typer.Option(
        "--data", help="Folder of `epochzero recommend search`, a table of clicks with its --schema, or synthetic:ROWS."
    ),
]
RecommenderSpace = Annotated[str, typer.Option("--space", help="nasrec_small or nasrec_full.")]
OwnOptions = Annotated[
    list[str] | None,
    typer.Option("--option", help="max_embedding_rows=10000, or max_embedding_bytes. May be repeated."),
]


@panel("Training")
class Training:
    """The settings of a training."""

    recipe: Annotated[
        str | None, typer.Option("--recipe", help="tuned or published; default: that of the search, or tuned.")
    ] = None
    epochs: Annotated[
        int | None, typer.Option("--epochs", help="Passes over the training rows, at most; default: the recipe's.")
    ] = None
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", help="Rows in a batch; default: that of the search, or the recipe's.")
    ] = None
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            help="A setting of the recipe: highest=0.05 (learning rate), optimizer=adam, patience=0, intervals=16, "
            "wide=0; or share, max_embedding_rows, max_embedding_bytes, embedding_width. May be repeated.",
        ),
    ] = None
    seed: Seed = 0
    device: Device = "cpu"

    @property
    def given(self) -> dict[str, Any]:
        """The arguments of `recommend.train`; a later --option wins."""
        given = {"epochs": self.epochs, "batch_size": self.batch_size}
        own = {name: value for name, value in given.items() if value is not None}
        options = own | key_values(self.option or [])
        return {"recipe": self.recipe, "options": options, "seed": self.seed, "device": self.device}


@contextmanager
def remarks_shown() -> Iterator[None]:
    """Prints remarks about data and settings on standard error as they come."""
    from epochzero.recommend.jobs import Remark

    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, Remark):
                err.print(str(message), style="yellow", soft_wrap=True)
            else:
                usual(message, category, *place, **more)

        warnings.showwarning = show
        warnings.simplefilter("always", Remark)
        yield


@contextmanager
def shown_progress(what: str, estimate: bool = True) -> Iterator[Progress]:
    """A bar on a terminal; elsewhere, such as in a log file, a line every few seconds."""
    if err.is_terminal:
        with progress_bar(what, estimate=estimate) as bar:
            yield bar
    else:
        yield Lines(f"of {what}", every=LINES_EVERY)
