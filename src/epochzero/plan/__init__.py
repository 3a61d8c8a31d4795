"""Networks as data: plans, the ops that they consist of, drawings and printed code."""

from epochzero.plan.builder import Builder, chain
from epochzero.plan.execute import execute, execute_jet
from epochzero.plan.init import SCHEMES, generator
from epochzero.plan.plan import Node, Plan

__all__ = ["SCHEMES", "Builder", "Node", "Plan", "chain", "execute", "execute_jet", "generator"]
