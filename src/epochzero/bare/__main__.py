"""`python -m epochzero.bare COMMAND ...`

A sub-command is a module with `add_options(parser)` and `run(asked)`; its docstring is its help. It is imported when it
is called.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from epochzero.bare import command

COMMANDS = {
    "search": ("epochzero.bare.search", "search a space, and write the result into one file"),
    "speed": ("epochzero.bare.speed", "measure the speed and memory of scoring"),
    "sweep": ("epochzero.bare.sweep", "score many networks of a space into one table"),
}
"""name to module and one line of help"""


def parser_of(name: str) -> argparse.ArgumentParser:
    """The parser of one sub-command."""
    module = import_module(COMMANDS[name][0])
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(f"python -m epochzero.bare {name}", None, module.__doc__, formatter_class=shape)
    module.add_options(parser)
    return parser


def main(arguments: list[str]) -> None:
    """Runs the sub-command that the arguments name."""
    shape = argparse.RawDescriptionHelpFormatter
    listed = "\n".join(f"  {name:10} {help_}" for name, (_, help_) in COMMANDS.items())
    top = argparse.ArgumentParser("python -m epochzero.bare", epilog=f"commands:\n{listed}", formatter_class=shape)
    top.add_argument("command", choices=list(COMMANDS))
    name = top.parse_args(arguments[:1]).command
    asked = parser_of(name).parse_args(arguments[1:])
    import_module(COMMANDS[name][0]).run(asked)


if __name__ == "__main__":
    command(lambda: main(sys.argv[1:]))
