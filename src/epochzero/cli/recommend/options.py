"""Options that the steps of `epochzero recommend` share."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from epochzero.cli.console import err
from epochzero.quantities import key_values

DATA, SIZES, RUNNING, OUTPUT = "Data", "Sizes and settings", "Running", "Output"
"""the groups of options in help"""

Schema = Annotated[
    str | None,
    typer.Option(
        "--schema",
        help="Columns of the table: criteo, avazu, kdd12, kdd12_clicks, or a .json or .toml file.",
        rich_help_panel=DATA,
    ),
]
BadLines = Annotated[
    str,
    typer.Option(
        "--bad-lines", help="strict stops at the first bad line, skip puts bad lines aside.", rich_help_panel=DATA
    ),
]
SearchedData = Annotated[
    str,
    typer.Option(
        "--data",
        help="Folder of `epochzero recommend search`, a table of clicks with its --schema, or synthetic:ROWS.",
        rich_help_panel=DATA,
    ),
]
RecommenderSpace = Annotated[
    str, typer.Option("--space", help="nasrec_small or nasrec_full.", rich_help_panel="Network")
]
Epochs = Annotated[
    int | None, typer.Option("--epochs", help="Passes over the training rows; default: 1.", rich_help_panel=SIZES)
]
TrainingBatch = Annotated[
    int | None,
    typer.Option("--batch-size", help="Rows in a batch; default: that of the search, or 512.", rich_help_panel=SIZES),
]
TrainingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        help="highest (learning rate), lowest, rise, eps, clip, share, max_embedding_rows, max_embedding_bytes: "
        "highest=0.05. May be repeated.",
        rich_help_panel=SIZES,
    ),
]


def training_options(epochs: int | None, batch_size: int | None, option: list[str] | None) -> dict[str, Any]:
    """The settings of a training that are given; a later --option wins."""
    given = {"epochs": epochs, "batch_size": batch_size}
    return {name: value for name, value in given.items() if value is not None} | key_values(option or [])


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


def metrics_text(metrics: Mapping[str, Any]) -> str:
    """Log loss and AUC in words."""
    area = metrics["why"] or f"AUC {metrics['auc']:.4f}"
    return f"log loss {metrics['log_loss']:.4f}, {area} ({metrics['rows']:,} rows)"
