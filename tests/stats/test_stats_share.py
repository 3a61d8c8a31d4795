"""The interval of a share."""

from __future__ import annotations

import pytest
from scipy.stats import binomtest

from epochzero.stats.share import share_interval, share_text


@pytest.mark.parametrize(("right", "n"), [(0, 5), (5, 5), (1, 2), (712, 1000), (9999, 10000)])
def test_as_scipy_has_it(right: int, n: int) -> None:
    expected = binomtest(right, n).proportion_ci(method="wilson")
    assert share_interval(right, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_as_text() -> None:
    assert share_text(712, 1000) == "71.20 % [68.32, 73.92]"
