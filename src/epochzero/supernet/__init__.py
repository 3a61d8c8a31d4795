"""Supernets: searches inside one network (NASI, Zero-Cost-PT), and weights that networks share."""

from epochzero.supernet import darts, darts_pairs, nb1shot1, nb201
from epochzero.supernet.base import AfterStep, Found, Inside, State, make, methods
from epochzero.supernet.relaxed import relax, supernet
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
    "make",
    "methods",
    "nb1shot1",
    "nb201",
    "relax",
    "shared",
    "supernet",
]
