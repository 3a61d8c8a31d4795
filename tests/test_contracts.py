"""The contracts of every registered proxy and search; those of spaces are in spaces/test_contract.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from epochzero.registry import proxies, searches
from epochzero.testing import check_proxy, check_search
from epochzero.testing import proxies as checks
from epochzero.testing import searches as search_checks
from epochzero.testing.proxies import (
    check_alone_or_together,
    check_disconnected_network,
    check_leaves_the_network_alone,
    check_population_does_not_matter,
)


@pytest.fixture(scope="module", autouse=True)
def _shallow(shallow_nb201: None) -> Iterator[None]:
    """Caches of shallow networks are not used for others, nor the other way round."""
    checks._together.cache_clear()
    yield
    checks._together.cache_clear()


@pytest.mark.parametrize("name", sorted(proxies))
def test_proxy(name: str) -> None:
    check_proxy(name)


def test_proxy_with_settings() -> None:
    check_proxy("zico(batches=4)")


def test_dextr_as_published() -> None:
    """It counts every block of a network, so it alone may tell a plan from a module that is cut up differently."""
    name = "dextr(variant=reference)"
    check_leaves_the_network_alone(name)
    check_alone_or_together(name)
    check_population_does_not_matter(name)
    check_disconnected_network(name)


@pytest.mark.parametrize("name", sorted(searches))
def test_search(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in ("hnas", "robot"):
        monkeypatch.setattr(search_checks, "ASKED", 20)  # each step fits a Gaussian process to all before it
    check_search(name)
