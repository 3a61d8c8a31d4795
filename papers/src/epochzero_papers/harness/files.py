"""The files that experiments read, their contents, and the error for missing ones.

Files are searched by name in one folder, by default `data`. `epochzero data import` makes `.ezb` files from the
official ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from epochzero.errors import DataError

FOLDER = "data"


@dataclass(frozen=True)
class File:
    """A file under any of its names; the first that is there is taken."""

    names: tuple[str, ...]
    what: str
    how: str = ""
    """the way to get it"""

    def find(self, folder: str | Path) -> Path | None:
        return next((path for name in self.names if (path := Path(folder) / name).is_file()), None)

    @property
    def request(self) -> str:
        """`put nb201.csv.gz (the accuracies of NAS-Bench-201)`"""
        return f"{' or '.join(self.names)} ({self.what}{f'; {self.how}' if self.how else ''})"


def missing(
    experiment: str,
    files: Iterable[File],
    folder: str | Path,
    *,
    instead: Iterable[Iterable[File]] = (),
    optional: Iterable[File] = (),
) -> DataError:
    """Returns the error that names these files, other sets that would do, and files used if present."""
    wanted = "; or ".join(dict.fromkeys(_together(some) for some in (files, *instead)))
    besides = _together(optional)
    more = f", and optionally {besides}," if besides else ""
    return DataError(
        f"{experiment} needs data that are not there: put {wanted}{more} into the folder '{folder}', "
        "or name another folder with --data-folder."
    )


def _together(files: Iterable[File]) -> str:
    return ", and ".join(dict.fromkeys(file.request for file in files))


def table(stem: str, what: str, columns: str, how: str) -> File:
    """A table of accuracies, imported or as CSV or Parquet."""
    names = tuple(f"{stem}{ending}" for ending in (".ezb", ".csv.gz", ".csv", ".parquet"))
    return File(names, f"{what}, columns {columns}", how)


IMPORTED = "`epochzero data import` makes it from the official file"
NB201 = table("nb201", "NAS-Bench-201", "arch_str, cifar10_test, cifar100_test, imagenet16_test", IMPORTED)
NB101 = File(
    ("nb101.ezb", "nb101_15k.csv.gz", "nb101.csv.gz", "nb101.parquet"),
    "NAS-Bench-101 or a sample of it, columns adjacency, ops, test_acc_108ep",
    IMPORTED,
)
NB301 = table("nb301", "NAS-Bench-301's predictions for random networks", "arch, cifar10_val", IMPORTED)
NATS_SSS = table("nats_sss", "NATS-Bench's size space", "arch, cifar10_test, cifar100_test, imagenet16_test", IMPORTED)
TRANSNAS = table(
    "transnas_micro",
    "TransNAS-Bench-101, micro",
    "arch, class_object_test_top1, class_scene_test_top1, jigsaw_test_top1",
    IMPORTED,
)
CIFAR10 = File(("cifar10.npz", "cifar-10-python.tar.gz"), "images of CIFAR-10: arrays x_train, y_train")
CIFAR100 = File(("cifar100.npz", "cifar-100-python.tar.gz"), "images of CIFAR-100: arrays x_train, y_train")
IMAGENET16 = File(("imagenet16.npz",), "images of ImageNet16-120: arrays x_train, y_train")
TASKONOMY = File(("taskonomy.npz",), "images of Taskonomy: arrays x_train, y_train")
MNIST = File(("mnist.npz", "mnist5k.npz"), "digits of MNIST: arrays x, y")
