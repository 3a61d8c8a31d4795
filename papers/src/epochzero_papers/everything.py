"""Imports every experiment: each file registers its own."""

import pkgutil
from importlib import import_module

import epochzero_papers

SKIPPED = ("epochzero_papers.commands", "epochzero_papers.__main__", __name__)
"""modules that hold no experiment"""

for module in pkgutil.walk_packages(epochzero_papers.__path__, "epochzero_papers."):
    if not module.name.startswith(SKIPPED):
        import_module(module.name)
