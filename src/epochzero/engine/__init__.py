"""Runs networks for proxies."""

from epochzero.engine.failure import check_samples
from epochzero.engine.loss import label_loss
from epochzero.engine.network import Handle, Network, PlanNetwork
from epochzero.engine.passes import Layer, Need, Pass, Summed, need, together
from epochzero.engine.proxy import Proxy, parse, parse_list, proxy
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
