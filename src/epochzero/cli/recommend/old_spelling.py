"""The spellings before `epochzero recommend`, which work for one more release and then say what to use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import typer

from epochzero.cli.console import err
from epochzero.cli.product import refuse
from epochzero.cli.recommend.export import export as export_
from epochzero.cli.recommend.predict import predict as predict_
from epochzero.cli.recommend.search import search as search_
from epochzero.cli.recommend.train import train as train_
from epochzero.errors import UserError

USED = {
    *("--space", "--proxy", "--method", "--data", "--schema", "--bad-lines", "--warmup", "--preset", "--option"),
    *("--top", "--max-params", "--max-flops", "--seed", "--out", "--plugin", "--json"),
}
"""the options of `epochzero search` that a search for recommenders has too"""


def hinting(step: str, command: Callable[..., None]) -> Callable[..., None]:
    """The command, which names its new spelling on standard error once it has succeeded."""

    @wraps(command)
    def run(**given: Any) -> None:
        command(**given)
        err.print(f"Use `epochzero recommend {step}`: this spelling goes with the next release.", style="yellow")

    return run


predict = hinting("predict", predict_)


def searched(context: typer.Context) -> bool:
    """Runs `epochzero recommend search` if `epochzero search` asks for a recommender; False if it does not."""
    options = {one.opts[0]: str(one.name) for one in context.command.params}
    sources = {option: context.get_parameter_source(name) for option, name in options.items()}
    given = {option for option, source in sources.items() if source is not None and source.name == "COMMANDLINE"}
    value = {option: context.params[options[option]] for option in USED}
    data = value["--data"] if "--data" in given else None
    generated = data is not None and data.partition(":")[0] == "synthetic"
    if not generated and value["--schema"] is None and (data is not None or {"--pool", "--table"} & given):
        return False
    if not generated and value["--schema"] is None and not _for_clicks(value["--space"]):
        return False
    if unused := sorted(given - USED):
        raise UserError(
            f"A search for recommenders has no use for {unused[0]}: leave it out; `--option batch_size=256` and the "
            "like change its sizes."
        )
    default = {"--proxy": "sigeo", "--method": "evolution_nasrec"}
    own = {option: default[option] if option in default.keys() - given else value[option] for option in USED}
    own["--data"], own["--out-dir"] = data, own.pop("--out")
    asked = {option.removeprefix("--").replace("-", "_"): one for option, one in own.items() if option != "--plugin"}
    hinting("search", search_)(**asked, recipe="tuned", baselines="logistic,dlrm", seeds=None)
    return True


def _for_clicks(space: str) -> bool:
    from epochzero.recommend.spaces.nasrec import Nasrec
    from epochzero.registry import spaces

    return isinstance(spaces[space], Nasrec)


def trained(unused: Mapping[str, object], **given: Any) -> None:
    """`epochzero train` on a table of clicks; `unused` options are refused."""
    for option, value in unused.items():
        if value is not None:
            raise UserError(f"Training on a table of clicks has no use for {option}: leave it out.")
    hinting("train", train_)(**given, recipe=None)


def exported(
    weights: Path, data: str | None, out_dir: Path, *, unused: Mapping[str, object], onnx: bool, json: bool
) -> None:
    """`epochzero export` of a trained recommender; `unused` options are refused."""
    refuse(unused, f"The recommender '{weights}'")
    hinting("export", export_)(weights=weights, data=data, out_dir=out_dir, onnx=onnx, json=json)
