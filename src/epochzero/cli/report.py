"""`epochzero report`: a run as an HTML page."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from epochzero.cli.console import err, out, print_json
from epochzero.cli.options import AsJson, Plugins
from epochzero.cli.plugin import load_plugins
from epochzero.errors import UserError


def report(
    stores: Annotated[
        list[Path],
        Argument(
            help="The store of the run: what was given as --store. Further ones are compared with it. Or the folder of "
            "`epochzero recommend train`."
        ),
    ],
    table: Annotated[Path | None, Option(help="Accuracies of known networks, to compare the scores with.")] = None,
    target: Annotated[
        str | None, Option(help="Columns of the --table, separated by commas; default: its first.")
    ] = None,
    run: Annotated[str | None, Option(help="Start of the run's id; default: the latest.")] = None,
    out_file: Annotated[Path | None, Option("--out", help="The HTML file; default: report.html.")] = None,
    serve: Annotated[
        bool, Option("--serve", help="Serve a live page while the run is under way, instead of a file.")
    ] = False,
    host: Annotated[str, Option(help="Address of --serve; default: only this machine.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port of --serve; 0: any free port.")] = 8765,
    force: Annotated[bool, Option("--force", help="Allow a --host that other machines can reach.")] = False,
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """Make one HTML file of a run: what it found, how it went, how far to trust it. It opens offline.

    epochzero report run.db --table nb201.csv.gz --target cifar10_test --out report.html

    epochzero report run.db --serve

    epochzero report seed0.db seed1.db seed2.db

    epochzero report run --out recommender.html

    The last one is of a trained recommender. The live report only reads the store; the run may start before or after
    it, or be killed.
    """
    from epochzero import report as reports
    from epochzero.report.recommender import is_recommender, write_recommender

    load_plugins(plugin)
    if target is not None and table is None:
        raise UserError("--target names columns of a table: name it with --table FILE.")
    if serve and (out_file is not None or json):
        raise UserError("--serve writes no file: leave out --out and --json, or --serve.")
    store, *others = stores
    if serve and others:
        raise UserError("--serve follows one store: name it alone.")
    targets = [] if target is None else [name.strip() for name in target.split(",") if name.strip()]
    subject = reports.Subject(store, table, targets, run, others)
    if serve:
        if not store.is_file():
            raise UserError(f"There is no store '{store}' yet: start the run first.")
        with suppress(KeyboardInterrupt):
            reports.serve(subject, host, port, force=force, ready=_say)
        return
    path = out_file or Path("report.html")
    size = write_recommender(store, path) if is_recommender(store) else reports.write(subject, path)
    if json:
        print_json({"report": str(path), "bytes": size})
    else:
        out.print(str(path))
        err.print(f"{size / 1e6:.1f} MB, one file that opens offline", style="dim")


def _say(address: str) -> None:
    out.print(address)
    err.print("Live until Ctrl-C.", style="dim")
