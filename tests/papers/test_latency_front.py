"""Fronts of accuracy and latency: the shares by hand, and a table in which the proxy is the truth."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from epochzero.errors import DataError
from epochzero.registry import experiments, spaces
from epochzero_papers.harness import table_searches
from epochzero_papers.ours import nb201_latency_front
from epochzero_papers.ours.nb201_latency_front import SEARCHED, TRUE, Fronts, Plane

SPACE = spaces["nb201"]
CELLS = Random(1).sample(list(SPACE), 300)


def truth(cell: tuple[str, ...]) -> float:
    return 60 + 5.0 * cell.count("nor_conv_3x3") + cell.count("nor_conv_1x1") + 0.1 * cell.count("skip_connect")


def latency(cell: tuple[str, ...]) -> float:
    return 1 + sum({"nor_conv_3x3": 3.0, "nor_conv_1x1": 1.0}.get(op, 0.1) for op in cell)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """dextr orders networks as the truth does; the accuracy after 12 epochs says the opposite."""
    folder = tmp_path_factory.mktemp("data")
    tables: dict[str, tuple[list[str], Callable[[Any], list[float]]]] = {
        "nb201.csv": (["arch_str", "cifar10_test", "cifar10_val_12ep"], lambda c: [truth(c), -truth(c)]),
        "nb201_scores.csv": (["arch", "dextr", "naswot"], lambda c: [truth(c) / 7, c.count("none")]),
        "hwnasbench_nb201.csv": (["arch_str", "cifar10_raspi4_latency"], lambda c: [latency(c)]),
    }
    for name, (head, row) in tables.items():
        with (folder / name).open("w", newline="") as file:
            csv.writer(file).writerows([head, *([SPACE.text(cell), *row(cell)] for cell in CELLS)])
    return folder


def test_shares_by_hand() -> None:
    places = {"a": (3.0, 0.0), "b": (2.0, 2.0), "c": (0.0, 3.0), "d": (1.0, 1.0)}
    nothing = (math.nan, 0.0)
    plane = Plane.of([*places, "e"], lambda n: places.get(n, nothing)[0], lambda n: places.get(n, nothing)[1])
    assert plane.reference == (0.0, 0.0) and plane.whole == 4.0 and set(plane.front) == {"a", "b", "c"}
    assert plane.share(["d"]) == 0.25 and plane.share(["b", "e"]) == 1.0 and plane.share([]) == 0.0


def test_a_search_by_the_truth_finds_the_true_front(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_searches, "OWN", folder / "nowhere")
    monkeypatch.setattr(nb201_latency_front, "STEPS", (40, 300))
    result = experiments["nb201-latency-front"].run(Fronts(networks=3, devices=("raspi4",)), folder=folder)
    found = {(row.x, row.y, row.statistic): row.found for row in result.rows}
    shares = {key: figure.value for key, figure in found.items() if figure is not None}
    assert shares["the whole table, dextr", "all", TRUE] == 1.0
    assert shares["the whole table, 12 epochs", "all", TRUE] < 1.0
    assert shares["NSGA-II - random, dextr", "300 evaluations", TRUE] == pytest.approx(0, abs=1e-12)
    for method in ("NSGA-II", "random"):
        ends = [shares[f"{method}, dextr", "300 evaluations", statistic] for statistic in (TRUE, SEARCHED)]
        assert ends == pytest.approx([1.0, 1.0]), "everything was evaluated"
        few = shares[f"{method}, dextr", "40 evaluations", TRUE]
        assert 0 < few < 1
        assert shares[f"{method}, 12 epochs", "300 evaluations", SEARCHED] == pytest.approx(1.0)
        assert shares[f"{method}, 12 epochs", "300 evaluations", TRUE] < 0.9


def test_what_is_missing_is_named(folder: Path, tmp_path: Path) -> None:
    one = experiments["nb201-latency-front"]
    assert one.status(folder) == "ready" and one.status(tmp_path) == "needs data"
    with pytest.raises(DataError, match=r"needs data that are not there: put hwnasbench_nb201.csv.gz or"):
        one.run(folder=tmp_path)
