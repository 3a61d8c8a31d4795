"""benchmarks/pairs.py: every family's networks run, pairs are counted rightly, and a page comes out."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from unittest.mock import patch

import numpy as np
import pytest
import torch

from tests.test_bench_scripts import script

PAIRS = script("pairs")


@pytest.mark.parametrize("name", PAIRS.FAMILIES)
def test_a_family_has_different_networks(name: str) -> None:
    nets = [make() for make in PAIRS.FAMILIES[name].values()]
    assert all(net.eval()(torch.zeros(2, 3, 32, 32)).shape == (2, 10) for net in nets)
    assert len({repr(net) for net in nets}) == len(nets) >= 3


def test_pairs_that_differ_are_counted() -> None:
    assert PAIRS.right([1, 2, 3], [0.1, 0.2, 0.3], 2000) == (3, 3)
    assert PAIRS.right([3, 2, 1], [0.1, 0.2, 0.3], 2000) == (0, 3)
    assert PAIRS.right([1, 1, 1], [0.1, 0.2, 0.205], 2000) == (1, 2)


def test_a_page_from_few_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = Random(0)
    labels = np.array([rng.randrange(10) for _ in range(64)])
    pixels = np.random.default_rng(0).integers(0, 256, (64, 32, 32, 3), np.uint8)
    np.savez(tmp_path / "few.npz", x_train=pixels, y_train=labels, x_test=pixels, y_test=labels)
    asked = [str(tmp_path / "few.npz"), "--families", "resolution", "--epochs", "1", "--images", "64"]
    with patch.object(sys, "argv", ["pairs.py", *asked, "--kept", str(tmp_path / "kept.json")]):
        PAIRS.main()
    assert "| resolution | 3 |" in capsys.readouterr().out
    assert (tmp_path / "kept.json").read_text().count("resolution/stride") == 3
