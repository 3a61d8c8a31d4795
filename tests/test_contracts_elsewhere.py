"""The same seed gives every proxy the same score in another process."""

from __future__ import annotations

from epochzero.registry import proxies
from epochzero.testing.proxies import check_same_in_another_process


def test_same_seed_same_score_in_another_process() -> None:
    check_same_in_another_process(sorted(proxies))
