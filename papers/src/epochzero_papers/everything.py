"""Import every experiment: each file registers its own."""

import pkgutil
from importlib import import_module

import epochzero_papers

for found in pkgutil.walk_packages(epochzero_papers.__path__, "epochzero_papers."):
    if found.name != __name__:
        import_module(found.name)
