"""The picture of predictions: members that predict alike lie together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from epochzero.ensemble.metrics import pairwise_disagreement
from epochzero.ensemble.picture import disagreement, draw_predictions, layout
from epochzero.errors import UserError


def alike(seed: int, members: int = 4) -> Tensor:
    """Members of one mind, with a little noise; another seed is of another mind."""
    rng = torch.Generator().manual_seed(seed)
    mind = 3 * torch.randn(1, 30, 5, generator=rng)
    return (mind + 0.1 * torch.randn(members, 30, 5, generator=rng)).softmax(2)


def test_members_that_predict_alike_lie_together() -> None:
    places = layout(torch.cat([alike(0), alike(1)]))
    assert places.shape == (8, 2)
    middles = places[:4].mean(0), places[4:].mean(0)
    inside = max(float(np.linalg.norm(places[:4] - middles[0], axis=1).max()), 1e-9)
    assert float(np.linalg.norm(middles[0] - middles[1])) > inside
    assert np.array_equal(places, layout(torch.cat([alike(0), alike(1)])))


def test_disagreement_is_that_of_every_pair() -> None:
    predictions = torch.cat([alike(0, 2), alike(1, 1)])
    found = disagreement(predictions)
    assert torch.equal(found, found.mT) and torch.equal(found.diagonal(), torch.zeros(3).double())
    pairs = [pairwise_disagreement(predictions[[i, j]]) for i, j in ((0, 1), (0, 2), (1, 2))]
    assert [float(found[i, j]) for i, j in ((0, 1), (0, 2), (1, 2))] == pytest.approx(pairs)


def test_the_picture_is_written(tmp_path: Path) -> None:
    labels = torch.arange(30) % 5
    drawn = draw_predictions({"one": alike(0, 2), "two": alike(1, 2)}, labels, tmp_path / "a.png")
    assert drawn.read_bytes().startswith(b"\x89PNG") and drawn.stat().st_size > 5000


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least 3 members, not 2"):
        layout(alike(0, 2))
    with pytest.raises(UserError, match="the same images and classes"):
        draw_predictions({"a": alike(0), "b": alike(1)[:, :9]}, torch.zeros(30), tmp_path / "a.png")
