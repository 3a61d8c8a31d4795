"""Tables of networks that searches select: counted, trained, and compared with the paper's figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import epochzero as ez
from epochzero.engine.space_networks import batch_for
from epochzero.errors import DataError, UserError
from epochzero.registry import experiments, options_of, searches, spaces
from epochzero.store import Store
from epochzero.supernet import make, methods
from epochzero.train.recipes import Recipe
from epochzero_papers.harness.base import Result
from epochzero_papers.harness.figures import grid
from epochzero_papers.harness.network_searches import SAMPLE, NetworkSearch, NetworkSearches, SearchSettings
from epochzero_papers.harness.report import table
from tests.papers.small import small_images

FOUND = ("dextr-table2", "dextr-table3", "dextr-table8", "sigeo-table4", "thesis-table6.2", "thesis-table7.7")
pytestmark = pytest.mark.usefixtures("shallow_nb201")


class Small(NetworkSearches):
    """Two searches of NAS-Bench-201, one of them within a limit."""

    name = "small found"
    source = "nowhere"
    full = quick = SearchSettings(networks=3, batch_size=2, evaluations=4, epochs=1)
    searches: ClassVar[Mapping[str, NetworkSearch]] = {
        "largest": NetworkSearch("nb201", "params", "random"),
        "small": NetworkSearch(
            "nb201", "flops", "evolution", max_params=200_000, options={"population": 4, "tournament": 2}
        ),
    }
    paper = grid(("params M", "C10 error %", "GPU days"), {"largest": (0.5, 9.0, 1.0), "small": (None, 8.0, None)})
    columns = ("params M",)
    tested: ClassVar[Mapping[str, bool]] = {"C10 error %": True}
    recipe = Recipe(batch_size=8)
    unmeasured = "a clock"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_images(tmp_path_factory.mktemp("data"), "cifar10.npz").parent


@pytest.fixture
def result(folder: Path) -> Result:
    return Small().run(folder=folder, seed=5)


def test_one_search_of_each_kind_will_do_and_has_no_interval(folder: Path) -> None:
    found = Small().run(SearchSettings(networks=1, batch_size=2, evaluations=4), folder=folder)
    lines = table(found.rows)[1]
    assert [line[2] for line in lines] == ["1"] * 4 and not any("[" in line[3] for line in lines)
    with pytest.raises(UserError, match="small found needs at least 1 networks, not 0"):
        Small().run(SearchSettings(networks=0), folder=folder)


def test_rows_are_means_over_searches_that_were_run_apart(result: Result, folder: Path) -> None:
    rows = {(row.x, row.y): row for row in result.rows}
    assert list(rows) == [(label, column) for label in Small.searches for column in ("params M", "C10 error %")]
    for label, spec in Small.searches.items():
        apart = [
            ez.search(
                "nb201",
                spec.proxy,
                spec.method,
                4,
                max_params=spec.max_params,
                data=folder / "cifar10.npz",
                batch_size=2,
                seed=seed,
                options=spec.options,
            )
            for seed in (5, 6, 7)
        ]
        found = rows[label, "params M"].found
        assert found is not None and found.n == 3
        assert found.value == pytest.approx(sum(one.plan.params for one in apart) / 3e6)
        error = rows[label, "C10 error %"].found
        assert error is not None and error.low <= error.value <= error.high and 0 <= error.value <= 100
    assert rows["largest", "params M"].paper == 0.5 and rows["small", "params M"].paper is None
    assert result.left_out == ["GPU days: not measured, for that takes a clock."]
    assert len(result.samples[SAMPLE].archs) == 6


def test_the_values_that_are_drawn_are_named(result: Result) -> None:
    sample = result.samples[SAMPLE]
    found = next(row.found for row in result.rows if (row.x, row.y) == ("largest", "params M"))
    assert found is not None and np.mean([value or 0 for value in sample.values["largest"]]) == pytest.approx(
        found.value
    )
    assert sample.data["largest"].endswith("Values behind the picture: params M.")


def test_images_that_no_search_would_see_are_refused(folder: Path) -> None:
    with pytest.raises(UserError, match=r"dextr-table8 searches with pink noise and trains nothing: leave --data out"):
        experiments["dextr-table8"].run(folder=folder, data=folder / "cifar10.npz")


def test_a_run_with_a_store_repeats_itself(folder: Path, tmp_path: Path, result: Result) -> None:
    first, again = (Small().run(folder=folder, seed=5, store=tmp_path / "run.db") for _ in range(2))
    assert first.rows == again.rows == result.rows
    with pytest.raises(DataError, match=r"small found needs data that are not there: put cifar10\.npz"):
        Small().run(folder=tmp_path)


def test_a_short_training_tells_a_search_under_a_name_of_its_own(folder: Path, tmp_path: Path) -> None:
    class Told(Small):
        searches: ClassVar[Mapping[str, NetworkSearch]] = {
            "largest": NetworkSearch("nb201", "", "random", feedback="default(epochs=1,batch_size=8)")
        }
        tested: ClassVar[Mapping[str, bool]] = {}

    told = Told().run(
        SearchSettings(networks=3, batch_size=2, evaluations=2, images=16), folder=folder, store=tmp_path / "a.db"
    )
    assert [row.y for row in told.rows] == ["params M"] and told.left_out[0].startswith("C10 error %, GPU days")
    with Store.open(tmp_path / "a.db") as store:
        proxies = {row.proxy for row in store.all_scores()}
    assert len(proxies) == 3, "a training of each seed"
    assert all(
        proxy.startswith("feedback:default(epochs=1,batch_size=8,images=16) on cifar10.npz") for proxy in proxies
    )


@pytest.mark.parametrize("name", FOUND)
def test_what_is_searched_for_is_there(name: str) -> None:
    recipe = experiments[name]
    assert set(recipe.searches) <= set(recipe.paper)
    for spec in recipe.searches.values():
        space = spaces[spec.space]
        smallest = space.plan(space.smallest())
        assert spec.max_params is None or smallest.params < spec.max_params
        assert spec.max_flops is None or smallest.flops < spec.max_flops
        options = dict(spec.options) | dict(recipe.quick.options)
        if spec.method in methods:
            make(spec.method, space, batch_for(space, size=2), 0, "cpu", options)
        else:
            assert options.keys() <= options_of(searches[spec.method]).keys()
    printed = {column for of in recipe.paper.values() for column in of}
    assert recipe.tested.keys() <= printed
