"""`epochzero analyze`: why a network scores as it does, in numbers and pictures."""

from __future__ import annotations

import typer

from epochzero.cli.analyze.dextr import curve, features, stability
from epochzero.cli.analyze.kernel import kernel
from epochzero.cli.analyze.planes import gradient_variance, landscape
from epochzero.cli.analyze.topology import topology
from epochzero.cli.options import spread

__all__ = ["analyze"]

analyze = typer.Typer(no_args_is_help=True, help="Why a network scores as it does: topology, landscapes, features.")
analyze.command()(topology)
for command in (landscape, gradient_variance, features, curve, stability, kernel):
    analyze.command()(spread(command))
