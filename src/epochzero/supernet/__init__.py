"""Searches inside one network that holds all others: NASI and Zero-Cost-PT; weights that networks share."""

from epochzero.supernet import darts, darts_pairs, nb1shot1, nb201
from epochzero.supernet.base import AfterStep, Found, Inside, State, defaults_of, make, methods
from epochzero.supernet.operations import supernet
from epochzero.supernet.relaxed import relax
from epochzero.supernet.single_path import SharedWeights, SinglePath, shared

__all__ = [
    "AfterStep",
    "Found",
    "Inside",
    "SharedWeights",
    "SinglePath",
    "State",
    "darts",
    "darts_pairs",
    "defaults_of",
    "make",
    "methods",
    "nb1shot1",
    "nb201",
    "relax",
    "shared",
    "supernet",
]
