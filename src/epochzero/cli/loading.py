"""Commands that are loaded when they are called: help and mistakes need no torch, and no command needs another's.

`epochzero NAME` is the function, or the group of functions, of that name in the file of that name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from epochzero.errors import UserError

ABOUT = {
    "list": "List the proxies, search spaces, searches or experiments, each with its facts.",
    "score": "Score one network: an architecture of a space, or any nn.Module of yours.",
    "rank": "Rank networks by a score over several draws of weights and data: which of them to train?",
    "search": "Search a space for the network with the best score, within a budget, before anything is trained.",
    "train": "Train a network on images with a paper's recipe or with our own.",
    "ensemble": "Choose several networks, train them, and let them predict together.",
    "export": "Write a network as a product: code that needs torch alone, weights, checked ONNX, a model card.",
    "recommend": "Find, train and export a recommender for a table of clicks, and predict with it.",
    "predict": "Predict the class of every image in a folder, by a trained network or an exported product.",
    "bench": "Rank correlation of proxies with known accuracies, with 95 % intervals.",
    "leaderboard": "Rank correlations of all stored scores with accuracies, on many tables: mean, worst and rank.",
    "bench-speed": "Time and memory of scoring a network: one at a time, in lockstep and in processes.",
    "reproduce": "Measure a table or figure of a paper again, and compare it with the paper's, with 95 % intervals.",
    "report": "Make one HTML file of a run: what it found, how it went, how far to trust it. It opens offline.",
    "store": "Show the runs in a result store, export its scores, add those of another, copy it, or salvage it.",
    "analyze": "Why a network scores as it does: topology, landscapes, features.",
    "data": "Benchmark tables and official files as one small file.",
}
"""every command, with the first line of its help"""
LARGEST = 2**62
LISTED = re.compile(r"<list\[(\w+)\]>")
"""the type of an option that may be repeated, of which the help says so in words"""
PAPERS = ("reproduce", "analyze.convergence", "analyze.theorems")
"""commands of the distribution `epochzero-papers`, by the names of their entry points: verb, or verb.sub-command"""


class Named(TyperCommand):
    """A command before it is loaded: its name and the first line of its help."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return loaded([str(self.name)]).commands[str(self.name)].make_context(info_name, args, parent, **extra)


class PlainTypes:
    """Options whose help has no type where they are flags, and else a short one, with bounds in words."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in params:
            least, most = getattr(one, "min", None), getattr(one, "max", None)
            if getattr(one, "is_flag", False):
                one.metavar = ""
            elif one.param_type_name == "option" and one.metavar is None and hasattr(one, "display_type"):
                one.metavar = LISTED.sub(r"<\1>", one.display_type(ctx)).replace(" range>", ">")
                one._get_number_range_help_str = partial(_bounds, least, most)
        return params


def _bounds(least: float | None, most: float | None) -> str:
    """The bounds of an option in words."""
    if most is None:
        return "" if least is None else f"at least {least:,}"
    return f"at most {most:,}" if least is None else f"{least:,} to {most:,}"


class Leaf(PlainTypes, TyperCommand):
    """A command of its own."""


class Group(PlainTypes, TyperGroup):
    """A command with commands in it."""


class Verbs(Group):
    """Every command, none of them loaded."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings | {"commands": {name: Named(name, help=line) for name, line in ABOUT.items()}})


def loaded(names: Iterable[str] = ABOUT) -> TyperGroup:
    """Returns these commands with all their options, those of other distributions with them."""
    others = {entry.name: entry.load for entry in entry_points(group="epochzero.commands")}
    others = {name: partial(_missing, name) for name in PAPERS} | others
    group = typer.Typer(rich_markup_mode="rich")
    for name in names:
        word = name.replace("-", "_")
        if name in others:
            member = others[name]()
        else:
            member = getattr(import_module(f"epochzero.cli.{word}"), "list_" if word == "list" else word)
        if isinstance(member, typer.Typer):
            for info in member.registered_commands:
                info.cls = Leaf
            group.add_typer(member, name=name, cls=Group)
        else:
            group.command(name, cls=Leaf, context_settings=getattr(member, "settings", {}))(member)
    whole = typer.main.get_group(group)
    for name, load in others.items():
        verb, dot, part = name.partition(".")
        if dot and verb in names:
            alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
            member, own = load(), whole.commands[verb]
            assert isinstance(own, TyperGroup)
            alone.command(part, cls=Leaf, context_settings=getattr(member, "settings", {}))(member)
            own.add_command(typer.main.get_command(alone), part)
    _check_numbers(whole)
    return whole


def _check_numbers(command: Any) -> None:
    """Lets every option of a command, and of the commands in it, refuse numbers that are not finite or too large."""
    for option in command.params:
        option.callback = partial(_finite, option.callback)
    for part in getattr(command, "commands", {}).values():
        _check_numbers(part)


def _finite(then: Callable[..., Any] | None, context: Any, option: Any, value: Any) -> Any:
    for number in value if isinstance(value, (list, tuple)) else [value]:
        if isinstance(number, (int, float)) and not abs(number) <= LARGEST:
            raise typer.BadParameter("a number has to be finite and at most 2^62.", ctx=context, param=option)
    return value if then is None else then(context, option, value)


def missing_papers(start: str) -> UserError:
    """Returns the error for what `epochzero-papers` adds, where it is not installed."""
    return UserError(
        f"{start} with the distribution epochzero-papers: install it with `pip install ./papers` in the folder of "
        "EpochZero's repository."
    )


def _missing(name: str) -> Callable[..., None]:
    def refuse(context: typer.Context) -> None:
        """Not installed: comes with the distribution epochzero-papers."""
        raise missing_papers(f"`epochzero {name.replace('.', ' ')}` comes")

    any_option_will_do = {"ignore_unknown_options": True, "allow_extra_args": True}
    refuse.settings = any_option_will_do  # type: ignore[attr-defined]
    return refuse
