"""The command line: one file for each verb.

Results go to standard output, everything else to standard error. Exit codes: 0 success, 2 invalid input, 1 runtime
failure, 130 Ctrl-C.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from rich.text import Text
from typer import Option

from epochzero import __version__
from epochzero.cli.console import err
from epochzero.cli.loading import Verbs
from epochzero.errors import MachineError, UserError, explained

USAGE: Any = typer.BadParameter.__bases__[0]
"""the class of errors in options and commands, for which Typer has no public name"""

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
    code = 0
    try:
        code = app(standalone_mode=False)
    except USAGE as error:
        sentence = " ".join(error.format_message().split())
        if not sentence:  # the help was asked for, by nothing after the name of a group
            sys.exit(2)
        see = f" See `{error.ctx.command_path} -h`." if error.ctx else ""
        _stop(f"{sentence}{'' if sentence.endswith(('.', '?')) else '.'}{see}", 2)
    except (UserError, MachineError, OSError) as error:
        _stop(*explained(error))
    except (RuntimeError, MemoryError) as error:
        from epochzero.engine.failure import out_of_memory

        if not out_of_memory(error):
            raise
        _stop("There is not enough memory for this: use a smaller --batch-size or --input-shape.", 1)
    if code == 130:  # typer's code for Ctrl-C
        err.print("Stopped. With a --store, or a folder of checkpoints, the same command resumes.")
        sys.exit(code)
    sys.exit(code if isinstance(code, int) else 0)


def _stop(sentence: str, code: int) -> None:
    err.print(Text.assemble(("error:", "red"), " ", sentence), soft_wrap=True)
    sys.exit(code)
