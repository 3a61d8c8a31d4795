"""The command line: one file for each verb.

Results go to standard output, everything else to standard error. Exit codes: 0 success, 2 invalid input, 1 runtime
failure, 130 Ctrl-C.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated

import typer
from rich.text import Text
from typer import Option

from epochzero import __version__
from epochzero.cli.console import err
from epochzero.cli.loading import Verbs
from epochzero.errors import MachineError, UserError, explained

app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"epochzero {__version__}")
        raise typer.Exit


@app.callback()
def _epochzero(
    version: Annotated[
        bool, Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Find the network before you train it.

    Scores networks at epoch zero with training-free proxies, searches with them, and says how far to trust them.
    """


def main() -> None:
    """Runs the command line, and turns errors into one sentence and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for terminals without ×
    try:
        app()
    except (UserError, MachineError, OSError) as error:
        _stop(*explained(error))
    except (RuntimeError, MemoryError) as error:
        from epochzero.engine.failure import out_of_memory

        if not out_of_memory(error):
            raise
        _stop("There is not enough memory for this: use a smaller --batch-size or --input-shape.", 1)
    except SystemExit as stop:
        if stop.code == 130:  # typer's code for Ctrl-C
            _stop("Stopped. With a --store, or a folder of checkpoints, the same command resumes.", 130)
        raise


def _stop(sentence: str, code: int) -> None:
    err.print(Text.assemble(("error:", "red"), " ", sentence), soft_wrap=True)
    sys.exit(code)
