"""Runs networks for proxies. Torch is loaded with the first name that needs it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from epochzero.engine.passes import Layer, Need, Pass, Summed, need, together
from epochzero.engine.proxy import Proxy, parse, parse_list, proxy

if TYPE_CHECKING:
    from epochzero.engine.failure import check_samples
    from epochzero.engine.loss import label_loss
    from epochzero.engine.network import Handle, Network, PlanNetwork
    from epochzero.engine.score import Scored, score_network, score_population
    from epochzero.engine.trace import Trace, each_layer, of_network

__all__ = [
    "Handle",
    "Layer",
    "Need",
    "Network",
    "Pass",
    "PlanNetwork",
    "Proxy",
    "Scored",
    "Summed",
    "Trace",
    "check_samples",
    "each_layer",
    "label_loss",
    "need",
    "of_network",
    "parse",
    "parse_list",
    "proxy",
    "score_network",
    "score_population",
    "together",
]

_HOMES = {
    "failure": ("check_samples",),
    "loss": ("label_loss",),
    "network": ("Handle", "Network", "PlanNetwork"),
    "score": ("Scored", "score_network", "score_population"),
    "trace": ("Trace", "each_layer", "of_network"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"epochzero.engine.{home}"), name)
    raise AttributeError(f"module 'epochzero.engine' has no attribute '{name}'")
