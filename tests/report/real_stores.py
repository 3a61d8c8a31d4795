"""One store of each kind of run that is no plain search, made by the command itself at the smallest size."""

from __future__ import annotations

import json
from pathlib import Path

from epochzero.recommend.data.synthetic import Planted
from epochzero_papers.sigeo.click_text import write_text
from tests.command import epochzero
from tests.papers.small import small_images
from tests.report.stores import networks
from tests.train import train_images

LAW = Planted(sizes=(20, 20, 10, 10, 6), num_dense=3, pairs=((0, 3), (1, 2)), gates=((0, 4),))
SIZES = {"population": 5, "generations": 1, "tournament": 2, "children": 1, "top": 3, "batch_size": 16, "widest": 16}


def reproduced(folder: Path) -> Path:
    """Dextr's table 4 on six networks and two data sets."""
    small_images(folder, "cifar10.npz")
    small_images(folder, "cifar100.npz")
    archs = networks(40)
    lines = (f"{arch},{90 - at},{70 - at},{40 - at}" for at, arch in enumerate(archs))
    heads = "arch,cifar10_test,cifar100_test,imagenet16_test"
    (folder / "nb201.csv").write_text("\n".join([heads, *lines, ""]), encoding="utf-8")
    store = folder / "run.db"
    asked = ("--quick", "--networks", 6, "--data-folder", folder, "--store", store)
    made = epochzero("reproduce", "dextr-table4", *asked)
    assert made.code == 0, made.err
    return store


def ensemble(folder: Path) -> Path:
    """Three random networks."""
    images = train_images.write(folder / "squares.npz", 64, 32, 8)
    asked = ("--method", "random", "--size", 3, "--epochs", 1, "--batch-size", 32, "--json")
    return Path(epochzero("ensemble", "--data", images, "--out", folder / "ensemble", *asked).json["store"])


def recommender(folder: Path) -> Path:
    """A search for recommenders, three of them trained."""
    write_text(folder / "clicks.tsv", 640, LAW)
    (folder / "schema.json").write_text(json.dumps(LAW.schema.json()), encoding="utf-8")
    data = (f"--data={folder}/clicks.tsv", f"--schema={folder}/schema.json", "--space=nasrec_small")
    sizes = [f"--option={name}={value}" for name, value in SIZES.items()]
    asked = ("--proxy=zico", "--warmup=0.1", "--preset=reduced", *sizes, f"--out={folder}/search")
    made = epochzero("search", *data, *asked)
    assert made.code == 0, made.err
    return folder / "search" / "chain.db"
