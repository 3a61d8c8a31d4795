"""`epochzero export`: a network, ensemble or recommender as a product."""

from epochzero.cli.export.command import export

__all__ = ["export"]
