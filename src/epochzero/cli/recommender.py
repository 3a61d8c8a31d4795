"""`epochzero search --schema criteo`: from a table of clicks to a trained recommender."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import typer
from rich.table import Table

from epochzero.cli.console import as_json, err, millions, out, print_json, progress_bar
from epochzero.cli.options import made_folder, options
from epochzero.errors import UnknownNameError, UserError
from epochzero.quantities import count
from epochzero.recommend.data.ingest import BadLines, encode, open_table
from epochzero.recommend.data.schema import Schema, load_schema
from epochzero.recommend.data.synthetic import Planted, synthetic
from epochzero.recommend.data.table import CtrTable, Part
from epochzero.recommend.spaces.nasrec import Nasrec
from epochzero.recommend.sub_one_shot import (
    EVOLUTION,
    PRESETS,
    Preset,
    RecommenderResult,
    SubOneShotSearch,
    check_limits,
    check_method,
    objective_of,
)
from epochzero.registry import near_miss, spaces

RESULT, CHOICE, ENCODING, TABLE = "result.json", "choice.json", "encoding.json", "table"
SKIPPED = "skipped.tsv"
SYNTHETIC = "synthetic"
ROWS = 500_000
EMBEDDED, EMBEDDED_BATCH = f"{SYNTHETIC}:12000", 256
"""what is searched on where no data are given, by the preset `reduced`: a minute or two on two cores"""
FEW_STEPS = 50
"""after 16 steps of warm-up sub-networks were no better than after none, after 78 they were (docs/results.md)"""
USUAL_PROXY = "sigeo"
"""where none is given: dextr, the usual one of the command, is for images"""
MEASURED: tuple[Part, ...] = ("val", "test")
USED = {
    *("--space", "--proxy", "--method", "--data", "--schema", "--bad-lines", "--warmup", "--preset", "--option"),
    *("--top", "--max-params", "--max-flops", "--seed", "--out", "--plugin", "--json"),
}
"""options that a search for recommenders has a use for"""
SCORED = {"--pool", "--table"}
"""options that bring scores with them: without data there is nothing to generate"""
LIMITS = "max_params", "max_flops", "max_embedding_rows", "max_embedding_bytes"
Limits = tuple[int | None, int | None]
"""on parameters beside the embeddings, and on multiply-accumulates"""


class Chosen(NamedTuple):
    """What the command says of the search itself."""

    space: str
    proxy: str
    data: str
    schema: str | None
    bad_lines: str
    warmup: float
    preset: str | None
    changes: Mapping[str, Any]
    """of the preset, and options of the chain"""
    seed: int
    method: str | None


def searched_clicks(context: typer.Context) -> bool:
    """Whether `epochzero search` was asked for a recommender; if so, it has been searched now."""
    told, given = context.params, given_options(context)
    data = recommender_data(told["space"], told["data"] if "--data" in given else None, told["schema"], given)
    if data is None:
        return False
    changes = options(told["option"] or []) | ({} if told["top"] is None else {"top": told["top"]})
    names = ("space", "schema", "bad_lines", "warmup", "preset", "seed", "method")
    proxy = told["proxy"] if "--proxy" in given else USUAL_PROXY
    search_recommender(
        Chosen(data=data, changes=changes, proxy=proxy, **{name: told[name] for name in names}),
        limits=(count(told["max_params"], "--max-params"), count(told["max_flops"], "--max-flops")),
        given=given,
        out_dir=told["out_dir"],
        json=told["json"],
    )
    return True


def given_options(context: typer.Context) -> frozenset[str]:
    """What the command line itself says, defaults aside: `--data` and so on."""
    names = {str(one.name): one.opts[0] for one in context.command.params}
    sources = {option: context.get_parameter_source(name) for name, option in names.items()}
    return frozenset(option for option, source in sources.items() if source and source.name == "COMMANDLINE")


def recommender_data(space: str, data: str | None, schema: str | None, given: Set[str]) -> str | None:
    """The table of clicks that a search is on; None where it is on none."""
    if data is not None and data.partition(":")[0] == SYNTHETIC:
        if schema is not None:
            raise UserError(f"--data {data} has a schema of its own: leave --schema out.")
        return data
    if schema is not None:
        if data is None:
            raise UserError("--schema says how to read a table of clicks: give the table as --data.")
        return data
    embedded = data is None and not given & SCORED and isinstance(spaces[space], Nasrec)
    return EMBEDDED if embedded else None


def search_recommender(
    chosen: Chosen,
    *,
    limits: Limits,
    given: Set[str],
    out_dir: Path | None,
    json: bool,
) -> None:
    """The whole chain with a bar, and what it found in the folder, which is runs/SPACE by default.

    Options that are given and of no use are refused.
    """
    if unused := sorted(given - USED):
        raise UserError(
            f"A search for recommenders has no use for {unused[0]}: leave it out; `--option batch_size=256` and the "
            "like change its sizes."
        )
    usual, small = ("published", {}) if "--data" in given else ("reduced", {"batch_size": EMBEDDED_BATCH})
    sizes, own = _sizes(chosen.preset or usual, small | dict(chosen.changes))
    space = spaces[chosen.space]
    if not isinstance(space, Nasrec):
        raise UserError(
            f"The space {chosen.space} has no networks for tables of clicks: give --space nasrec_small, or other data."
        )
    if not 0 <= chosen.warmup <= 1:
        raise UserError(f"--warmup takes a share from 0 to 1 of an epoch, not {chosen.warmup:g}.")
    objective_of(chosen.proxy, chosen.warmup)  # which refuses what it does not know
    check_method(chosen.method or EVOLUTION)
    schema = _schema(chosen)
    embeddings = (own.get(name) for name in ("max_embedding_rows", "max_embedding_bytes"))
    fitted = space.on(max(1, len(schema.dense)), [column.rows for column in schema.categorical], *embeddings)
    check_limits(fitted.reduced(sizes.widest, sizes.most_rows), *limits)  # before a long table is read
    folder = made_folder(out_dir or Path("runs") / chosen.space)
    if out_dir is None:
        err.print(f"results go to {folder}; --out chooses another folder", soft_wrap=True)
    with progress_bar("reading") as bar:
        table = table_of(chosen.data, schema, chosen.bad_lines, folder, lambda rows: bar(rows, rows, "rows"))
    for part in MEASURED:
        if table.clicks(part) in (0, table.size(part)):
            err.print(f"All {part} rows have the same label, so there is no AUC on them.", style="yellow")
    more: dict[str, Any] = {"max_params": limits[0], "max_flops": limits[1], "seed": chosen.seed}
    if chosen.method is not None:
        more["method"] = chosen.method
    with progress_bar("search", estimate=False) as bar:
        more["tell"] = lambda stage, done, total, note: bar(done, total, f"{stage}: {note}")
        chain = SubOneShotSearch(table, chosen.space, chosen.proxy, chosen.warmup, preset=sizes, **more, **own)
        if 0 < chain.schedule.steps < FEW_STEPS:
            told = f"{chain.schedule.steps} of the {chain.schedule.epoch:,} steps of an epoch"
            err.print(
                f"The warm-up is {told}, too few to learn much from: on so small a table a larger --warmup does more.",
                style="yellow",
                soft_wrap=True,
            )
        found = chain.run(folder)
    report = _report(found, chain, folder)
    (folder / RESULT).write_text(as_json(report, indent=1), encoding="utf-8")
    (folder / CHOICE).write_text(chain.fitted.choice(chain.fitted.parse(found.best.arch)), encoding="utf-8")
    chain.data.encoding.write(folder / ENCODING)
    if json:
        print_json(report)
        return
    _show(found, report)
    err.print(f"\nresults  {folder}/{RESULT}, {CHOICE}, {ENCODING} and checkpoints", soft_wrap=True)


def _schema(chosen: Chosen) -> Schema:
    """Of the table that is to be read."""
    if chosen.schema is None:
        return Planted().schema
    return open_table(chosen.data).encoding.schema if Path(chosen.data).is_dir() else load_schema(chosen.schema)


def _sizes(preset: str, changes: Mapping[str, Any]) -> tuple[Preset, dict[str, Any]]:
    """The preset with what was changed of it, and options of the chain itself."""
    if preset not in PRESETS:
        hint = near_miss(preset, list(PRESETS))
        raise UnknownNameError(f"No preset is called '{preset}'.{hint} Known: {', '.join(PRESETS)}.")
    own: dict[str, type] = {"scaled": int, "share": float, "highest": float}
    own |= {"max_embedding_rows": int, "max_embedding_bytes": int}
    known = {field.name: int for field in fields(Preset)} | own
    for name, value in changes.items():
        if name not in known:
            hint = near_miss(name, list(known))
            raise UnknownNameError(
                f"A search for recommenders has no option '{name}'.{hint} It has {', '.join(known)}."
            )
        if not isinstance(value, (int, float) if known[name] is float else int):
            raise UserError(f"The option '{name}' takes {known[name].__name__}, not {value!r}.")
    mine = {name: bool(value) if name == "scaled" else value for name, value in changes.items() if name in own}
    return replace(PRESETS[preset], **{name: value for name, value in changes.items() if name not in own}), mine


def table_of(data: str, schema: str | Schema, bad_lines: str, folder: Path, tell: Any) -> CtrTable:
    """The table in numbers: made from a file, opened, or generated. Lines that were put aside are counted aloud."""
    kind, _, rows = data.partition(":")
    if kind == SYNTHETIC:
        if not (rows or str(ROWS)).isdecimal():
            raise UserError(f"--data {SYNTHETIC} takes a number of rows, as {SYNTHETIC}:{ROWS}, not {data!r}.")
        return synthetic(folder / TABLE, int(rows or ROWS))
    if Path(data).is_dir():
        return open_table(data)
    table = encode(data, schema, folder / TABLE, bad_lines=mode_of(bad_lines), tell=tell)
    if table.skipped:
        lines = "1 bad line" if table.skipped == 1 else f"{table.skipped:,} bad lines"
        err.print(f"{lines} put aside: {table.folder / SKIPPED}", style="yellow", soft_wrap=True)
    return table


def mode_of(bad_lines: str) -> BadLines:
    """What --bad-lines says."""
    modes: dict[str, BadLines] = {"strict": "strict", "skip": "skip"}
    if bad_lines not in modes:
        raise UserError(f"--bad-lines takes strict or skip, not {bad_lines!r}.")
    return modes[bad_lines]


def _report(found: RecommenderResult, chain: SubOneShotSearch, folder: Path) -> dict[str, Any]:
    """What the search leaves behind; a table in its own folder is named so that the folder can be moved."""
    own = chain.table.folder == folder / TABLE
    return {
        "best": asdict(found.best),
        "candidates": [asdict(candidate) for candidate in found.candidates],
        "space": chain.space,
        "proxy": found.objective,
        "method": chain.method,
        "warmup": chain.warmup,
        "warmup_steps": found.warmup_steps,
        "limits": {name: getattr(chain, name) for name in LIMITS},
        "preset": asdict(chain.preset),
        "seed": chain.seed,
        "share": chain.share,
        "highest": chain.highest,
        "table": TABLE if own else str(chain.table.folder.resolve()),
        "skipped_lines": chain.table.skipped,
        "rows": {"train": chain.trained_rows} | {part: chain.table.size(part) for part in MEASURED},
        "embedding_params": found.embedding_params,
        "evaluated": found.evaluated,
        "seconds": sum(found.seconds.values()),
        "stages": found.seconds,
    }


def _show(found: RecommenderResult, report: Mapping[str, Any]) -> None:
    out.print(f"{found.best.arch}\n", style="bold")
    shown = Table("", "score", "params", "val log loss", "test log loss", "test AUC", box=None, header_style="dim")
    for number, one in enumerate(found.candidates, start=1):
        mark = f"{number} *" if one is found.best else str(number)
        losses = (f"{value:.4f}" for value in (one.val_log_loss, one.test_log_loss, one.test_auc))
        shown.add_row(mark, f"{one.score:.4g}", millions(one.params), *losses)
    out.print(shown)
    out.print("* the lowest log loss on the validation rows; params beside the embeddings'", style="dim")
    spent = ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in found.seconds.items())
    share = "" if report["share"] == 1 else f", {100 * report['share']:g} % of those there are"
    err.print(f"\n{found.evaluated} networks looked at by {found.objective}; {spent}", soft_wrap=True)
    err.print(f"{report['rows']['train']:,} rows trained on{share}", soft_wrap=True)
