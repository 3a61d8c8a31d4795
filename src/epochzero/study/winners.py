"""The best networks of earlier work, named by a store, a winner.json, or a file with a module."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from epochzero.errors import StoreError, UserError
from epochzero.objectives.objective import parse_objective
from epochzero.registry import spaces
from epochzero.spaces.base import AnySpace
from epochzero.store import Run, Store
from epochzero.study.given import GivenNetworks, given_network
from epochzero.types import Score
from epochzero.user_code import is_named, is_reference, named_in


class Winner(NamedTuple):
    """A network by the name of its space and its text; a module of the user's has a space without a name."""

    space: str
    arch: str


def winners(source: str | Path, top: int = 1) -> list[Winner]:
    """Returns the best networks, the best first: of a store's last search or ranking, or as winner.json lists them."""
    if is_reference(source):
        if top > 1:
            raise UserError(f"'{source}' is one module: leave --top out.")
        return [Winner("", str(source))]
    path = Path(source)
    if not path.is_file():
        raise StoreError(f"There is no store or winner.json '{path}'; a module of yours is named as file.py:factory.")
    found = _of_json(path) if path.suffix == ".json" else _of_store(path)
    if len(found) < top:
        raise UserError(
            f"'{path}' lists {len(found)} of the {top} networks: name the store of the search, or lower --top."
        )
    return found[:top]


def winners_of(sources: Sequence[str | Path], top: int = 1) -> list[Winner]:
    """Returns the best networks of each source; a module among several sources is one network."""
    several = len(sources) > 1
    return [one for source in sources for one in winners(source, 1 if several and is_reference(source) else top)]


def one_space(found: Sequence[Winner]) -> str:
    """Returns the name of the space of all; UserError if they are of several."""
    names = list(dict.fromkeys(one.space or "no space" for one in found))
    if len(names) > 1:
        raise UserError(f"The networks of --from are of {' and '.join(names)}: name sources of one space.")
    return found[0].space


def only_winner(sources: Sequence[str | Path]) -> Winner:
    """Returns the best network of the only source."""
    if len(sources) > 1:
        raise UserError(f"One network is meant, and --from is given {len(sources)} times: give it once.")
    return winners(sources[0])[0]


def train_command(store: str | Path, data: str | None = None, shape: Sequence[int] = ()) -> str:
    """The command that trains the winner on the images of the search; a search on noise leaves them open."""
    from epochzero.data import NOISE, is_image_folder
    from epochzero.data.image_folder import SIDE

    images = "FILE.npz" if data is None or data in NOISE else _quoted(data)
    scaled = data is not None and len(shape) == 3 and shape[-1] != SIDE and is_image_folder(Path(data).expanduser())
    size = f" --image-size {shape[-1]}" if scaled else ""
    return f"epochzero train --from {_quoted(str(store))} --data {images}{size} --out trained"


def _quoted(path: str) -> str:
    """A path for a shell, which still finds the home folder."""
    home, rest = ("~/", path[2:]) if path.startswith("~/") else ("", path)
    return home + quote(rest)


def _of_json(path: Path) -> list[Winner]:
    try:
        told: Any = json.loads(path.read_text(encoding="utf-8"))
        ranked = told.get("front") or [told["best"], *told.get("top", [])[1:]]
        return [Winner(str(told["space"]), str(one["arch"])) for one in ranked]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"'{path}' is not the winner.json or front.json of a search.") from None


def _of_store(path: Path) -> list[Winner]:
    with Store.open(path) as store:
        kinds = ("search", "rank")
        finished = [run for run in store.runs() if run.kind in kinds and run.result and run.result.get("best")]
        if not finished:
            raise StoreError(f"The store '{path}' holds no finished search or ranking with a winner: finish one.")
        run = finished[-1]
        assert run.result is not None
        if run.kind == "rank":
            return _of_ranking(path, run.result)
        space, best = str(run.settings["space"]), str(run.result["best"])
        front: Any = run.result.get("front")
        archs = front or list(dict.fromkeys([best, *_by_merit(run)]))
    return [Winner(space, arch) for arch in archs]


def _of_ranking(path: Path, result: Mapping[str, Any]) -> list[Winner]:
    """The networks of a ranking in its order; UserError where one cannot be made again from its name."""
    if "order" not in result:
        raise StoreError(f"The ranking in '{path}' is of an older version: rank once more with the same command.")
    of_user = GivenNetworks.name
    gone = [arch for space, arch in result["order"] if space == of_user and not is_named(arch)]
    if gone:
        raise UserError(
            f"The ranking in '{path}' has networks without a file of their own, such as '{gone[0]}': name the one to "
            "take, file.py:factory, or use the ranking in Python, which can train and export."
        )
    return [Winner("" if space == of_user else space, arch) for space, arch in result["order"]]


def _by_merit(run: Run) -> list[str]:
    """All networks of a run with a score, the best first."""
    objective = parse_objective(str(run.settings["proxy"]))
    scores: dict[str, dict[str, Score]] = {}
    for steps in run.history().values():
        for step in steps:
            scores.setdefault(step.arch, {}).update({key: score for key, (score, _) in step.scores.items()})
    lacks = Score.failed("not stored")
    rows: list[Mapping[str, Score]] = [
        {proxy.text: own.get(proxy.key, lacks) for proxy in objective.proxies} for own in scores.values()
    ]
    merits = zip(objective.merits(rows), scores, strict=True)
    ranked = [(merit, arch) for merit, arch in merits if merit is not None]
    return [arch for _, arch in sorted(ranked, key=lambda one: -one[0])]


def resolved(one: Winner) -> tuple[AnySpace, Any]:
    """Its space and architecture."""
    if not one.space:
        return GivenNetworks(), given_network(one.arch, named_in(one.arch, "--from"))
    if ":" in one.space and one.space not in spaces:
        raise UserError(f"The space {one.space!r} is not known here: name its file too, --plugin file.py:NAME.")
    space: AnySpace = spaces[one.space]
    return space, space.parse(one.arch)
