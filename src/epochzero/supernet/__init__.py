"""Searches inside one network that holds all others: NASI and Zero-Cost-PT."""

from epochzero.supernet import darts, nb1shot1, nb201
from epochzero.supernet.base import Found, Inside, Progress, State, defaults_of, make, methods
from epochzero.supernet.operations import supernet
from epochzero.supernet.relaxed import relax

__all__ = [
    "Found",
    "Inside",
    "Progress",
    "State",
    "darts",
    "defaults_of",
    "make",
    "methods",
    "nb1shot1",
    "nb201",
    "relax",
    "supernet",
]
