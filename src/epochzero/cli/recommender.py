"""`epochzero search --schema criteo`: from a table of clicks to a trained recommender."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from epochzero.cli.console import as_json, err, millions, out, print_json, progress_bar
from epochzero.cli.options import made_folder
from epochzero.data.ctr import BadLines, encode, open_table
from epochzero.data.ctr_synthetic import synthetic
from epochzero.data.ctr_table import CtrTable, Part
from epochzero.errors import UnknownNameError, UserError
from epochzero.registry import near_miss, spaces
from epochzero.spaces.nasrec import Nasrec
from epochzero.train.recommender import PRESETS, Chain, Preset, Recommended

RESULT, CHOICE, ENCODING, TABLE = "result.json", "choice.json", "encoding.json", "table"
SKIPPED = "skipped.tsv"
SYNTHETIC = "synthetic"
ROWS = 500_000
MEASURED: tuple[Part, ...] = ("val", "test")


class Chosen(NamedTuple):
    """What the command says of the search itself."""

    space: str
    proxy: str
    data: str
    schema: str
    bad_lines: str
    warmup: float
    preset: str
    changes: Mapping[str, Any]
    """of the preset, and options of the chain"""
    seed: int


def search_recommender(
    chosen: Chosen,
    *,
    limits: tuple[int | None, int | None],
    unused: Mapping[str, object],
    out_dir: Path | None,
    json: bool,
) -> None:
    """The whole chain with a bar, and what it found in the folder.

    `limits` are on parameters beside the embeddings and multiply-accumulates; `unused` options are refused.
    """
    for option, value in unused.items():
        if value not in (None, "local"):
            raise UserError(
                f"A search for recommenders has no use for {option}: leave it out; `--option batch_size=256` and the "
                "like change its sizes."
            )
    if out_dir is None:
        raise UserError("A search for recommenders keeps its table, checkpoints and results in a folder: give --out.")
    sizes, own = _sizes(chosen.preset, chosen.changes)
    if not isinstance(spaces[chosen.space], Nasrec):
        raise UserError(
            f"--schema is for tables of clicks, and {chosen.space} has no networks for them: use nasrec_small."
        )
    folder = made_folder(out_dir)
    with progress_bar("reading") as bar:
        table = table_of(chosen.data, chosen.schema, chosen.bad_lines, folder, lambda rows: bar(rows, rows, "rows"))
    for part in MEASURED:
        if table.clicks(part) in (0, table.size(part)):
            err.print(f"All {part} rows have the same label, so there is no AUC on them.", style="yellow")
    more: dict[str, Any] = {"max_params": limits[0], "max_flops": limits[1], "seed": chosen.seed}
    with progress_bar("search", estimate=False) as bar:
        more["tell"] = lambda stage, done, total, note: bar(done, total, f"{stage}: {note}")
        chain = Chain(table, chosen.space, chosen.proxy, chosen.warmup, preset=sizes, **more, **own)
        found = chain.run(folder)
    report = _report(found, chain)
    (folder / RESULT).write_text(as_json(report, indent=1), encoding="utf-8")
    fitted = chain.fitted
    (folder / CHOICE).write_text(fitted.choice(fitted.parse(found.best.arch)), encoding="utf-8")
    chain.data.encoding.write(folder / ENCODING)
    if json:
        print_json(report)
        return
    _show(found)
    err.print(f"\nresults  {folder}/{RESULT}, {CHOICE}, {ENCODING} and checkpoints", soft_wrap=True)


def _sizes(preset: str, changes: Mapping[str, Any]) -> tuple[Preset, dict[str, Any]]:
    """The preset with what was changed of it, and options of the chain itself."""
    if preset not in PRESETS:
        hint = near_miss(preset, list(PRESETS))
        raise UnknownNameError(f"No preset is called '{preset}'.{hint} Known: {', '.join(PRESETS)}.")
    own: dict[str, type] = {"scaled": int, "share": float, "max_embedding_rows": int, "max_embedding_bytes": int}
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


def table_of(data: str, schema: str, bad_lines: str, folder: Path, tell: Any) -> CtrTable:
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
        err.print(f"{table.skipped:,} bad lines put aside: {table.folder / SKIPPED}", style="yellow", soft_wrap=True)
    return table


def mode_of(bad_lines: str) -> BadLines:
    """What --bad-lines says."""
    modes: dict[str, BadLines] = {"strict": "strict", "skip": "skip"}
    if bad_lines not in modes:
        raise UserError(f"--bad-lines takes strict or skip, not {bad_lines!r}.")
    return modes[bad_lines]


def _report(found: Recommended, chain: Chain) -> dict[str, Any]:
    return {
        "best": asdict(found.best),
        "candidates": [asdict(candidate) for candidate in found.candidates],
        "space": chain.space,
        "proxy": found.objective,
        "warmup": chain.warmup,
        "warmup_steps": found.warmup_steps,
        "preset": asdict(chain.preset),
        "seed": chain.seed,
        "share": chain.share,
        "table": str(chain.table.folder.resolve()),
        "skipped_lines": chain.table.skipped,
        "rows": {part: chain.table.size(part) for part in ("train", "val", "test")},
        "embedding_params": found.embedding_params,
        "evaluated": found.evaluated,
        "seconds": sum(found.seconds.values()),
        "stages": found.seconds,
    }


def _show(found: Recommended) -> None:
    out.print(f"{found.best.arch}\n", style="bold")
    shown = Table("", "score", "params", "val log loss", "test log loss", "test AUC", box=None, header_style="dim")
    for number, one in enumerate(found.candidates, start=1):
        mark = f"{number} *" if one is found.best else str(number)
        losses = (f"{value:.4f}" for value in (one.val_log_loss, one.test_log_loss, one.test_auc))
        shown.add_row(mark, f"{one.score:.4g}", millions(one.params), *losses)
    out.print(shown)
    out.print("* the lowest log loss on the validation rows; params beside the embeddings'", style="dim")
    spent = ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in found.seconds.items())
    err.print(f"\n{found.evaluated} networks looked at by {found.objective}; {spent}", soft_wrap=True)
