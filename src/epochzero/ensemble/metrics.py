r"""Accuracy, diversity and calibration of an ensemble, from its members' probabilities p_m(c | x).

    p(c | x)   = (1/M) sum_m p_m(c | x)                              the ensemble's prediction
    error      = share of x with argmax_c p(c | x) != y              of the ensemble
    ATE        = (1/M) sum_m share of x that member m gets wrong     averaged test error of the members
    PPD        = mean over pairs m < k of the share of x where the two predict different classes
    NLL        = -mean log p(y | x)
    ECE        = sum_b (n_b / N) |accuracy_b - confidence_b|         15 bins of equal width of max_c p(c | x), (l, u]

All except NLL are shares between 0 and 1; the thesis prints percent. PPD is pairwise predictive disagreement: the share
itself, not divided by the error as in some figures of Fort et al.; it is 0 for a single member.

Shu. Understanding and improving neural architecture search. PhD thesis, section 5.4.4 (ATE, PPD).
Fort, Hu, Lakshminarayanan. Deep ensembles: a loss landscape perspective. 2019. arXiv:1912.02757
Guo, Pleiss, Sun, Weinberger. On calibration of modern neural networks. ICML 2017. arXiv:1706.04599
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from epochzero.errors import UserError

BINS = 15


def ensemble_error(probabilities: Tensor, labels: Tensor) -> float:
    """The error of the averaged prediction; probabilities [M, N, classes], labels [N]."""
    _check(probabilities, labels)
    return _share(averaged(probabilities).argmax(1) != labels)


def averaged_test_error(probabilities: Tensor, labels: Tensor) -> float:
    """ATE: the mean of the members' own errors."""
    return _share(probabilities.argmax(2) != labels)


def pairwise_disagreement(probabilities: Tensor) -> float:
    """PPD: the share of images on which two members predict different classes, mean over all pairs."""
    predicted = probabilities.argmax(2)  # [M, N]
    M = len(predicted)
    if M < 2:
        return 0.0
    first, second = torch.triu_indices(M, M, 1, device=predicted.device)  # [pairs], [pairs]
    return _share(predicted[first] != predicted[second])


def nll(probabilities: Tensor, labels: Tensor) -> float:
    """Negative log likelihood of the averaged prediction."""
    _check(probabilities, labels)
    right = averaged(probabilities).gather(1, labels[:, None])  # [N, 1]
    return float(-right.clamp_min(torch.finfo(right.dtype).tiny).log().mean())


def calibration_error(probabilities: Tensor, labels: Tensor, bins: int = BINS) -> float:
    """ECE of the averaged prediction."""
    confidence, predicted = averaged(probabilities).max(1)  # [N], [N]
    surplus = (predicted == labels).to(confidence.dtype) - confidence  # [N]
    place = (confidence * bins).ceil().long().clamp(1, bins) - 1  # [N]
    gaps = surplus.new_zeros(bins).index_add(0, place, surplus)  # [bins]: n_b (accuracy_b - confidence_b)
    return float(gaps.abs().sum() / len(labels))


@dataclass(frozen=True, slots=True)
class Measures:
    """All measures of one ensemble."""

    accuracy: float
    error: float
    ate: float
    ppd: float
    ece: float
    nll: float

    def as_json(self) -> dict[str, float]:
        return asdict(self)


def measure(probabilities: Tensor, labels: Tensor) -> Measures:
    """All measures; probabilities [M, N, classes], labels [N]."""
    error = ensemble_error(probabilities, labels)
    return Measures(
        accuracy=1 - error,
        error=error,
        ate=averaged_test_error(probabilities, labels),
        ppd=pairwise_disagreement(probabilities),
        ece=calibration_error(probabilities, labels),
        nll=nll(probabilities, labels),
    )


def averaged(probabilities: Tensor) -> Tensor:
    """The ensemble's prediction [N, classes], in double precision."""
    return probabilities.double().mean(0)


def _share(which: Tensor) -> float:
    return float(which.double().mean())


def _check(probabilities: Tensor, labels: Tensor) -> None:
    if probabilities.dim() != 3 or labels.shape != probabilities.shape[1:2] or not probabilities.numel():
        raise UserError(
            "An ensemble is measured on probabilities [members, samples, classes] and labels [samples], not on "
            f"{list(probabilities.shape)} and {list(labels.shape)}."
        )
