"""A picture of the differences between the predictions of ensemble members (thesis, figure 5.4).

Each member is a point: its probabilities on the same images, flattened and reduced to two dimensions by t-SNE, so that
members with similar predictions are close together. Further panels show the share of images on which two members
disagree, for every pair, and each member's test error as a bar, with a line at the error of its ensemble. Each ensemble
has a colour. Needs the extras `attacks` (scikit-learn) and `plots` (matplotlib).

van der Maaten, Hinton. Visualizing data using t-SNE. JMLR 9, 2008.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epochzero.ensemble.metrics import ensemble_error
from epochzero.errors import UserError, needed
from epochzero.pictures import INK, new_figure, style

PERPLEXITY = 5.0
"""of t-SNE, about the number of neighbours of a point; less if there are few points"""


def check_picture(members: int) -> None:
    """UserError if so few members, or any on this machine, cannot be drawn."""
    if members < 3:
        raise UserError(f"A picture of predictions needs at least 3 members, not {members}: draw several ensembles.")
    for library, extra in (("sklearn", "attacks"), ("matplotlib", "plots")):
        needed(library, "The picture", extra)


def layout(predictions: Tensor, seed: int = 0) -> NDArray[np.float64]:
    """Positions [M, 2] of members, from their probabilities [M, N, classes]."""
    members = len(predictions)
    check_picture(members)
    from sklearn.manifold import TSNE

    perplexity = min(PERPLEXITY, (members - 1) / 3)
    rows = predictions.flatten(1).double().cpu().numpy()  # [M, N * classes]
    spread = TSNE(2, perplexity=perplexity, init="random", learning_rate=10.0, random_state=seed)
    return np.asarray(spread.fit_transform(rows), np.float64)


@style()
def draw_predictions(ensembles: Mapping[str, Tensor], labels: Tensor, path: Path, *, seed: int = 0) -> Path:
    """Draws ensembles by name to a file (.png, .svg or .pdf): probabilities [M, N, classes] on the same images."""
    if not ensembles or len({tuple(p.shape[1:]) for p in ensembles.values()}) > 1:
        raise UserError("A picture of predictions needs ensembles that predict the same images and classes.")
    together = torch.cat(list(ensembles.values()))  # [members of all, N, classes]
    places, labels = layout(together, seed), labels.cpu()
    figure = new_figure(13, 4)
    near, apart, errors = figure.subplots(1, 3)
    start = bar = 0
    for name, predictions in ensembles.items():
        some = places[start : start + len(predictions)]
        start += len(predictions)
        dots = near.scatter(some[:, 0], some[:, 1], label=name)
        wrong = (predictions.argmax(2) != labels).double().mean(1)  # [M]
        errors.bar(range(bar, bar + len(wrong)), (100 * wrong).tolist(), color=dots.get_facecolor())
        errors.hlines(100 * ensemble_error(predictions, labels), bar - 0.5, bar + len(wrong) - 0.5, colors=INK)
        bar += len(wrong) + 1
    near.set_title("predictions of the members, by t-SNE")
    near.legend(loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=3)
    apart.grid(visible=False)
    shown = apart.imshow(100 * disagreement(together).numpy(), vmin=0, cmap="viridis")
    figure.colorbar(shown, ax=apart)
    apart.set_title("two members disagree (% of the images)")
    errors.set_title("test error of members; line: together (%)")
    for axes in (near, apart, errors):
        axes.set_xticks([])
    for axes in (near, apart):
        axes.set_yticks([])
    figure.savefig(path)
    return path


def disagreement(predictions: Tensor) -> Tensor:
    """The share of images on which two members predict different classes, [M, M], from [M, N, classes]."""
    predicted = predictions.argmax(2).cpu()  # [M, N]
    return (predicted[:, None] != predicted).double().mean(2)
