"""The contracts of every registered proxy and search; those of spaces are in spaces/test_contract.py."""

from __future__ import annotations

import pytest

from epochzero.registry import proxies, searches
from epochzero.testing import check_proxy, check_search
from epochzero.testing.proxies import (
    check_alone_or_together,
    check_disconnected_network,
    check_leaves_the_network_alone,
    check_population_does_not_matter,
    check_same_in_another_process,
)


@pytest.mark.parametrize("name", sorted(proxies))
def test_proxy(name: str) -> None:
    check_proxy(name)


@pytest.mark.parametrize("name", ["zico(batches=4)", "dextr(repeats=2)"])
def test_proxy_with_settings(name: str) -> None:
    check_proxy(name)


def test_dextr_as_published() -> None:
    """It counts every block of a network, so it alone may tell a plan from a module that is cut up differently."""
    name = "dextr(variant=reference)"
    check_leaves_the_network_alone(name)
    check_alone_or_together(name)
    check_population_does_not_matter(name)
    check_disconnected_network(name)


def test_same_seed_same_score_in_another_process() -> None:
    check_same_in_another_process(sorted(proxies))


@pytest.mark.parametrize("name", sorted(searches))
def test_search(name: str) -> None:
    check_search(name)
