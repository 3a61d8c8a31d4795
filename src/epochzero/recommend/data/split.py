"""The split into training, validation and test rows, 8/1/1, of AutoCTR and NASRec.

The rows of each label are dealt to ten folds in random order (a stratified tenfold split, seed 2018): folds 0 to 7
train, 8 validates, 9 tests. Within a part the rows keep the order of the file. The folds are those of scikit-learn's
`StratifiedKFold(10, shuffle=True, random_state=seed)`, in one byte a row.

Song et al. Towards automated neural interaction discovery for click-through rate prediction. KDD 2020. arXiv:2007.06434
Zhang et al. NASRec: weight sharing neural architecture search for recommender systems. WWW 2023. arXiv:2207.07187
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PARTS = ("train", "val", "test", "other")
"""in the order of their numbers; `other` are rows that a split column puts in none of the three"""
SPELLINGS = {"train": 0, "val": 1, "valid": 1, "validation": 1, "dev": 1, "test": 2}
OTHER = PARTS.index("other")
FOLDS, SEED = 10, 2018


def folds(labels: NDArray[np.uint8], seed: int = SEED) -> NDArray[np.uint8]:
    """The fold, 0 to 9, of every row [N].

    In the order of rows sorted by label, beginning with the label of the first row, row p adds a place in fold p mod 10
    for a row of its label.
    """
    rng = np.random.RandomState(seed)
    dealt = np.empty(len(labels), np.uint8)
    place = 0
    for label in (labels[0], 1 - labels[0]) if len(labels) else ():
        mine = labels == label
        end = place + int(mine.sum())
        sizes = [len(range(place + (fold - place) % FOLDS, end, FOLDS)) for fold in range(FOLDS)]
        cards = np.repeat(np.arange(FOLDS, dtype=np.uint8), sizes)
        rng.shuffle(cards)
        dealt[mine] = cards
        place = end
    return dealt


def parts(labels: NDArray[np.uint8], seed: int = SEED) -> NDArray[np.uint8]:
    """The number in `PARTS` of every row [N]."""
    of_fold = np.array([0] * 8 + [1, 2], np.uint8)
    return of_fold[folds(labels, seed)]
