"""`epochzero train` on a table of clicks: a network of nasrec_small or nasrec_full, most often what a search found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from json import loads
from pathlib import Path
from typing import Any

from epochzero.cli.console import as_json, err, millions, out, print_json, progress_bar
from epochzero.cli.options import made_folder
from epochzero.cli.recommender import CHOICE, ENCODING, MEASURED, RESULT, TABLE, table_of
from epochzero.data.sealed import read_own, write
from epochzero.engine.device import usable
from epochzero.errors import DataError, UnknownNameError, UserError
from epochzero.recommend.data.encoding import Encoding
from epochzero.recommend.data.ingest import open_table
from epochzero.recommend.data.table import CtrTable
from epochzero.recommend.recommender import CHECKPOINT, FILE, described
from epochzero.recommend.spaces.nasrec import Nasrec
from epochzero.recommend.training.source import TrainingSource
from epochzero.recommend.training.trainer import Settings, evaluate, rows_in, train
from epochzero.registry import near_miss, spaces

EMBEDDINGS = ("max_embedding_rows", "max_embedding_bytes")


@dataclass(frozen=True)
class Given:
    """What the command says."""

    space: str
    arch: str | None
    data: Path
    schema: str | None
    bad_lines: str
    changes: Mapping[str, Any]
    """of how to train: epochs, batch_size, highest, share, ..."""
    seed: int
    device: str


@dataclass(frozen=True)
class Work:
    """What is trained, on what and how."""

    space: Nasrec
    """for the table"""
    arch: str
    table: CtrTable
    settings: Settings
    share: float
    found: Mapping[str, Any] = field(default_factory=dict)
    """how the network was found, where a search found it"""


def is_search(folder: Path) -> bool:
    """Whether a search for recommenders left its results there."""
    return (folder / RESULT).is_file() and (folder / CHOICE).is_file()


def train_recommender(given: Given, *, unused: Mapping[str, object], out_dir: Path, json: bool) -> None:
    """Train, measure and keep a recommender; with a bar."""
    for option, value in unused.items():
        if value is not None:
            raise UserError(f"Training on a table of clicks has no use for {option}: leave it out.")
    usable(given.device)
    folder = made_folder(out_dir)
    work = _of_search(given) if is_search(given.data) else _of_table(given, folder)
    arch, table = work.space.parse(work.arch), work.table
    text, checkpoint = work.space.text(arch), folder / CHECKPOINT
    source = TrainingSource(work.space, table, work.settings, seed=given.seed, share=work.share)
    done = source.checkpoint(given.data, text)
    if done.is_file() and not checkpoint.exists():
        write(checkpoint, read_own(done))  # the search has trained it already, in the same way
    model = source.model(arch)
    with progress_bar("train") as bar:
        trained = train(
            model.to(given.device),
            table,
            work.settings,
            share=work.share,
            identity=source.identity(text),
            checkpoint=checkpoint,
            tell=lambda step, steps, loss: bar(step, steps, f"loss {loss:.4f}"),
        )
    training = {
        "source": Path(str(table.about["source"])).name,
        "rows": {"train": rows_in(work.share, table.size("train"))} | {part: table.size(part) for part in MEASURED},
        "settings": asdict(work.settings),
        "share": work.share,
        "seed": given.seed,
        "search": work.found,
        "metrics": {part: asdict(evaluate(model, table, part)) for part in MEASURED if table.size(part)},
    }
    table.encoding.write(folder / ENCODING)
    (folder / FILE).write_text(described(work.space.name, text, loads(as_json(training))), encoding="utf-8")
    embedded = work.space.embedding_params
    report = {
        "space": work.space.name,
        "arch": text,
        "params": work.space.plan(arch).params - embedded,
        "embedding_params": embedded,
        "steps": trained.steps,
        "seconds": trained.seconds,
        "rows_per_second": trained.rows_per_second,
        **training,
    }
    if json:
        print_json(report)
    else:
        _show(report, folder)


def _of_search(given: Given) -> Work:
    """What the search found, on its table, as it trained it unless told otherwise."""
    try:
        told = loads((given.data / RESULT).read_text(encoding="utf-8"))
        name, arch = told["space"], told["best"]["arch"]
        score = told["best"]["score"]
        how = {"batch_size": told["preset"]["batch_size"], "share": told["share"]}
        how["highest"] = told.get("highest", Settings.highest)  # which searches once did not say
        whole = given.data / told["table"]  # where it was, or beside the results
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{given.data / RESULT} cannot be read ({error}): search again, or give --schema.") from error
    if given.schema is not None:
        raise UserError(f"{given.data} is the folder of a search, which has a schema already: leave --schema out.")
    table = open_table(whole if whole.is_dir() else given.data / TABLE).capped(
        Encoding.read(given.data / ENCODING).rows
    )
    settings, own = _settings(how | dict(given.changes))
    if any(name in own for name in EMBEDDINGS):
        raise UserError("The search has settled the embeddings' sizes: search again to change them.")
    fitted = _space(name).on(table.num_dense, table.rows)
    mine = given.arch is None or fitted.text(fitted.parse(given.arch)) == arch
    kept = {key: told[key] for key in ("proxy", "method", "evaluated", "seed", "limits") if key in told}
    found = kept | {"score": score} if mine else {}
    return Work(fitted, given.arch or arch, table, settings, own["share"], found)


def _of_table(given: Given, folder: Path) -> Work:
    """A network that the user names, on a table that is read first."""
    space, (settings, own) = _space(given.space), _settings(given.changes)
    if given.arch is None:
        raise UserError("Say which network to train: give --arch, or the folder of a search as --data.")
    space.parse(given.arch)
    with progress_bar("reading") as bar:
        told = str(given.schema), given.bad_lines
        table = table_of(str(given.data), *told, folder, lambda rows: bar(rows, rows, "rows"))
    fitted = space.on(table.num_dense, table.rows, *(own.get(name) for name in EMBEDDINGS))
    return Work(fitted, given.arch, table.capped(fitted.tables), settings, own.get("share", 1.0))


def _space(name: str) -> Nasrec:
    found = spaces[name]
    if not isinstance(found, Nasrec):
        raise UserError(f"The space {name} has no networks for tables of clicks: give --space nasrec_small.")
    return found


def _settings(changes: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
    """How to train, and what else was said."""
    whole = {"batch_size", "epochs", *EMBEDDINGS}
    known = [field.name for field in fields(Settings)]
    for name, value in changes.items():
        if name not in (*known, "share", *EMBEDDINGS):
            hint = near_miss(name, [*known, "share", *EMBEDDINGS])
            raise UnknownNameError(
                f"Training on a table of clicks has no option '{name}'.{hint} "
                f"It has {', '.join([*known, 'share', *EMBEDDINGS])}."
            )
        if not isinstance(value, int if name in whole else (int, float)):
            raise UserError(f"The option '{name}' takes a {'whole ' if name in whole else ''}number, not {value!r}.")
    own = {name: value for name, value in changes.items() if name not in known}
    return Settings(**{name: value for name, value in changes.items() if name in known}), own


def _show(report: Mapping[str, Any], folder: Path) -> None:
    out.print(f"{report['arch']}\n", style="bold")
    out.print(f"params         {millions(report['params'])}, and {millions(report['embedding_params'])} of embeddings")
    share = "" if report["share"] == 1 else f", {100 * report['share']:g} % of those there are"
    out.print(f"data           {report['rows']['train']:,} rows to train on{share}")
    for part, found in report["metrics"].items():
        area = found["why"] or f"AUC {found['auc']:.4f}"
        out.print(f"{part:14} log loss {found['log_loss']:.4f}, {area} ({found['rows']:,} rows)")
    err.print(f"\n{report['steps']:,} steps, {report['seconds']:.1f} s of this call")
    err.print(f"recommender  {folder}/{FILE}, {ENCODING} and {CHECKPOINT}", soft_wrap=True)
