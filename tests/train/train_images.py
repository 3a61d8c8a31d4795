"""Small images that can be learnt: class k has its bright square in the k-th place, under noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from epochzero.registry import spaces

SPACE = spaces["resnet"]
SMALLEST = SPACE.text(SPACE.smallest())
CLASSES = 4


def images(count: int, seed: int, side: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """Bytes [N, H, W, 3] and labels [N]."""
    rng = np.random.default_rng(seed)
    y = rng.integers(CLASSES, size=count)
    x = rng.integers(120, size=(count, side, side, 3))
    half = side // 2
    for image, label in zip(x, y, strict=True):
        top, left = half * (label // 2), half * (label % 2)
        image[top + 1 : top + half - 1, left + 1 : left + half - 1] += 70
    return x.astype(np.uint8), y


def write(path: Path, train: int = 160, test: int = 80, side: int = 16) -> Path:
    x, y = images(train, 0, side)
    test_x, test_y = images(test, 1, side)
    np.savez(path, x_train=x, y_train=y, x_test=test_x, y_test=test_y)
    return path
