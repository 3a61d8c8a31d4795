"""`epochzero recommend`: from a table of clicks to predictions, one file for each step."""

from __future__ import annotations

import typer

from epochzero.cli.recommend.baselines import baselines
from epochzero.cli.recommend.export import export
from epochzero.cli.recommend.predict import predict
from epochzero.cli.recommend.rank import rank
from epochzero.cli.recommend.score import score
from epochzero.cli.recommend.search import search
from epochzero.cli.recommend.train import train

recommend = typer.Typer(
    no_args_is_help=True, help="Find, train and export a recommender for a table of clicks, and predict with it."
)
for _step in (search, train, export, predict, baselines, rank, score):
    recommend.command()(_step)
