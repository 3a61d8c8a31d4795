"""The network as data."""

from epochzero.plan.execute import execute, execute_jet
from epochzero.plan.init import SCHEMES, generator
from epochzero.plan.plan import Builder, Node, Plan, chain

__all__ = ["SCHEMES", "Builder", "Node", "Plan", "chain", "execute", "execute_jet", "generator"]
