"""Finds the network to export from the names of a space, an architecture, weights, a store or data."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from epochzero.data import load
from epochzero.errors import DataError, StoreError, UserError
from epochzero.export.subject import Subject, best_of
from epochzero.export.weights import read_weights
from epochzero.registry import spaces
from epochzero.store import Store
from epochzero.study.given import GivenNetworks
from epochzero.train.image_data import Images, load_images
from epochzero.types import Origin, Shape

REAL = 4
"""number of real inputs for the check"""


class Resolved(NamedTuple):
    """A network to export."""

    subject: Subject
    real: Tensor | None
    """real inputs for the check"""
    refused: list[str]
    """why damaged checkpoints were skipped"""


def resolve(
    space: str | None = None,
    arch: str | None = None,
    *,
    store: Path | None = None,
    weights: Path | None = None,
    data: str | None = None,
    classes: int | None = None,
    input_shape: Shape | None = None,
    origin: Origin = Origin(),
) -> Resolved:
    """The network of an architecture, of trained weights, or of the last finished search in a store.

    Space, architecture, classes and input shape default to those of the weights, then of the store, data or space.
    """
    given = None if weights is None else read_weights(weights)
    known = {} if given is None else given.identity
    text, name = arch or known.get("arch"), space or known.get("space") or "nb201"
    if name == GivenNetworks.name:
        raise UserError(f"The weights '{weights}' are those of a module: name it too, --from {str(text).split()[0]}.")
    with ExitStack() as stack:
        opened = None if store is None else stack.enter_context(_opened(store))
        if text is None:
            name, text = _winner(space, store, opened)
        sizes = input_shape or (tuple(known["input_shape"]) if "input_shape" in known else None)
        real, num_classes = (None, None) if data is None else real_inputs(data, sizes, origin.seed)
        subject = Subject.of(
            spaces[name],
            spaces[name].parse(text),
            num_classes=classes or known.get("num_classes") or num_classes,
            input_shape=sizes or (None if real is None else tuple(real.shape[1:])),
            weights=given,
            origin=origin,
            store=opened,
        )
    return Resolved(subject, real, [] if given is None else given.refused)


def real_inputs(source: str, shape: Shape | None, seed: int = 0) -> tuple[Tensor, int]:
    """A few standardised samples of any source of data, and its number of classes."""
    batch = load(source, input_shape=shape, size=REAL, parts=1, seed=seed, skip_unreadable=True)
    return batch.part(0)[0], batch.num_classes


def training_images(source: str | None, identity: Mapping[str, Any] | None) -> Images | None:
    """The images of a training, its test images with them; None if these data are others."""
    if source is None or not identity or len(identity["input_shape"]) != 3:
        return None
    data, side = identity["data"], identity["input_shape"][-1]
    try:
        images = load_images(source, seed=identity["seed"], side=side, skip_unreadable=bool(data["unreadable"]))
    except DataError:  # such as images without labels
        return None
    return images if images.facts["sha256"] == data["sha256"] else None


def _opened(path: Path) -> Store:
    if not path.is_file():
        raise StoreError(f"There is no store '{path}'.")
    return Store.open(path)


def _winner(space: str | None, path: Path | None, store: Store | None) -> tuple[str, str]:
    """Space and architecture of the best network of the store's last search."""
    if path is None or store is None:
        raise UserError("Say what to export: give --from, --arch, --store, or --weights of `epochzero train`.")
    searched, best = best_of(path, store)
    if space not in (None, searched):
        raise UserError(f"The store's last search was in {searched}, not in {space}: leave --space out.")
    return searched, best
