"""`python -m epochzero_papers STUDY ...`: the longer studies, which resume; most need torch and numpy alone.

A study is a function whose one argument is a dataclass: its fields are the options, and what it returns is printed.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from importlib import import_module
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from epochzero.bare import command

PROGRAM = "python -m epochzero_papers"
STUDIES = {
    "convergence": "thesis.convergence:run",
    "known-cells": "thesis.known_cells:run",
    "nasi-record": "nasi.grid:record",
    "nasi-report": "nasi.grid:report",
    "nesbs-attacks": "thesis.nesbs_attacks:run",
    "nesbs-chain": "thesis.nesbs_chain:run",
    "nesbs-report": "thesis.nesbs_report:run",
    "recommender-report": "sigeo.recommender_report:run",
    "recommender-sweep": "sigeo.recommender_sweep:run",
    "svgd-picture": "thesis.figure5_2:draw",
    "warm-up": "sigeo.warm_up:run",
}
"""the module and function of each study"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study that the arguments name, and print what it returns."""
    name, *rest = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    chooser = ArgumentParser(prog=PROGRAM, description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    chooser.add_argument("study", choices=list(STUDIES), metavar="STUDY", help=", ".join(STUDIES))
    study, parser = reader(chooser.parse_args([name]).study)
    printed = study(**vars(parser.parse_args(rest)))
    if printed:
        print(printed)


def reader(name: str) -> tuple[Callable[..., str | None], ArgumentParser]:
    """Returns a study that takes its options by name, and the parser of these options."""
    file, _, function = STUDIES[name].partition(":")
    module = import_module(f"epochzero_papers.{file}")
    study = getattr(module, function)
    settings = next(iter(get_type_hints(study).values()))
    parser = ArgumentParser(
        prog=f"{PROGRAM} {name}", description=module.__doc__, formatter_class=RawDescriptionHelpFormatter
    )
    hints = get_type_hints(settings)
    for one in fields(settings):
        _add(parser, one, hints[one.name])

    def run(**given: Any) -> str | None:
        values = {key: tuple(one) if isinstance(one, list) else one for key, one in given.items()}
        printed: str | None = study(settings(**values))
        return printed

    return run, parser


def _add(parser: ArgumentParser, one: Field[Any], kind: Any) -> None:
    """Add the option of a field: a flag for a truth value, any number of values for a tuple."""
    about, positional = one.metadata.get("about", ""), one.metadata.get("positional", False)
    default = one.default_factory() if one.default_factory is not MISSING else one.default
    how: dict[str, Any] = {"help": about or None}
    choices, kinds = get_args(kind), [kind]
    if kind is bool:
        how |= {"action": "store_true"}
    elif get_origin(kind) is Literal:
        how |= {"choices": choices}
    elif get_origin(kind) is tuple:
        how |= {"type": choices[0], **({"nargs": "+"} if positional else {"action": "append"})}
    else:
        kinds = [choice for choice in choices if choice is not NoneType] or kinds
        how |= {"type": kinds[0]}
    if positional:
        parser.add_argument(one.name, **how)
        return
    required = default is MISSING
    shown: Mapping[str, Any] = {} if required else {"default": list(default) if isinstance(default, tuple) else default}
    if not required and default not in (None, (), False) and "default" not in about:
        how["help"] = f"{about}; default: {default}".removeprefix("; ")
    parser.add_argument(f"--{one.name.replace('_', '-')}", required=required, **shown, **how)


if __name__ == "__main__":
    command(main)
