"""The command line: one file for each verb.

Results go to standard output, everything else to standard error. Exit code 0 for success, 2 for a mistake that the
user can mend, 1 for a failure of the machine, 130 when stopped by Ctrl-C.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.text import Text

from epochzero import __version__
from epochzero.cli import bench, score, search, store
from epochzero.cli.console import err
from epochzero.cli.list import list_
from epochzero.errors import MachineError, UserError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _epochzero(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    """Find the network before you train it.

    Scores networks at epoch zero with training-free proxies, searches with them, and says how far to trust them.
    """
    if version:
        typer.echo(f"epochzero {__version__}")
        raise typer.Exit


app.command(name="list")(list_)
app.command()(score.score)
app.command()(search.search)
app.command()(bench.bench)
app.command()(store.store)


def main() -> None:
    """Run the command line, and turn errors into one sentence and an exit code."""
    try:
        app()
    except UserError as error:
        _stop(str(error), 2)
    except MachineError as error:
        _stop(str(error), 1)
    except KeyboardInterrupt:
        _stop("Stopped. With a --store, the same command goes on from here.", 130)


def _stop(sentence: str, code: int) -> None:
    err.print(Text.assemble(("error:", "red"), " ", " ".join(sentence.splitlines())), soft_wrap=True)
    sys.exit(code)
