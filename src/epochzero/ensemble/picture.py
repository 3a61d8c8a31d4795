"""A picture of how differently the members of ensembles predict (thesis, figure 5.4).

Each member is a point: its probabilities on the same images, laid out in a line and brought to two dimensions by
t-SNE, so that members which predict alike lie close together. Ensembles are told apart by colour; a bar beside shows
each member's test error. Needs the extra `attacks` (scikit-learn) and `plots` (matplotlib).

van der Maaten, Hinton. Visualizing data using t-SNE. JMLR 9, 2008.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epochzero.errors import UserError
from epochzero.run.plots import new_figure

PERPLEXITY = 5.0
"""about how many neighbours a point looks at; less where there are few points"""


def check_picture(members: int) -> None:
    """UserError, before anything is trained, where so many members cannot be drawn here."""
    if members < 3:
        raise UserError(f"A picture of predictions needs at least 3 members, not {members}: draw several ensembles.")
    for library, extra in (("sklearn", "attacks"), ("matplotlib", "plots")):
        if importlib.util.find_spec(library) is None:
            raise UserError(f"The picture needs {library}: pip install 'epochzero[{extra}]'.")


def layout(predictions: Tensor, seed: int = 0) -> NDArray[np.float64]:
    """Places [M, 2] of members, from their probabilities [M, N, classes]."""
    members = len(predictions)
    check_picture(members)
    from sklearn.manifold import TSNE

    perplexity = min(PERPLEXITY, (members - 1) / 3)
    rows = predictions.flatten(1).double().cpu().numpy()  # [M, N * classes]
    spread = TSNE(2, perplexity=perplexity, init="random", learning_rate=10.0, random_state=seed)
    return np.asarray(spread.fit_transform(rows), np.float64)


def draw_predictions(ensembles: Mapping[str, Tensor], labels: Tensor, path: Path, *, seed: int = 0) -> Path:
    """Write the picture (.png, .svg or .pdf) of ensembles by name: probabilities [M, N, classes] on the same images."""
    if not ensembles or len({tuple(p.shape[1:]) for p in ensembles.values()}) > 1:
        raise UserError("A picture of predictions needs ensembles that were asked about the same images and classes.")
    places = layout(torch.cat(list(ensembles.values())), seed)
    figure = new_figure(9, 4)
    near, errors = figure.subplots(1, 2)
    start = bar = 0
    for name, predictions in ensembles.items():
        some = places[start : start + len(predictions)]
        start += len(predictions)
        near.scatter(some[:, 0], some[:, 1], label=name)
        wrong = (predictions.argmax(2) != labels).double().mean(1)  # [M]
        errors.bar(range(bar, bar + len(wrong)), (100 * wrong).tolist(), label=name)
        bar += len(wrong) + 1
    near.set_title("predictions of the members, by t-SNE")
    near.set_xticks([])
    near.set_yticks([])
    near.legend(fontsize="small")
    errors.set_title("test error of the members (%)")
    errors.set_xticks([])
    figure.savefig(path)
    return path
