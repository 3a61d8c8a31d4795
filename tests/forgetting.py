"""Plug-ins, loaded in this process and forgotten again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from epochzero.registry import proxies, searches, spaces
from epochzero.tables.formats import formats


@contextmanager
def plugins_forgotten() -> Iterator[None]:
    """Removes afterwards what plug-ins register, so that they can be loaded again."""
    before = [(registry, set(registry)) for registry in (proxies, searches, spaces, formats)]
    modules = set(sys.modules)
    try:
        yield
    finally:
        for registry, names in before:
            for name in set(registry) - names:
                del registry._members[name]
        for name in set(sys.modules) - modules:
            if "epochzero_plugin" in name:
                del sys.modules[name]
