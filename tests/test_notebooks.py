"""Objects as notebooks show them: a short line of text, and HTML or SVG that holds what a reader looks for."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
from torch import nn

import epochzero as ez
from epochzero.errors import UserError
from tests.command import CHEAP, CUT

pytestmark = pytest.mark.usefixtures("shallow_nb201")


def parsed(html: str) -> ElementTree.Element:
    """Its elements; an error where it is not well-formed."""
    return ElementTree.fromstring(f"<div>{html}</div>")


def cells(html: str) -> list[list[str]]:
    return [[cell.text or "" for cell in row] for row in parsed(html).iter("tr")]


@pytest.fixture(scope="module")
def result() -> ez.Result:
    return ez.search("nb201", "params", "random", 12, batch_size=2)


def test_names() -> None:
    assert {"score", "search", "rank", "choices", "space", "list_proxies"} <= set(dir(ez))


def test_a_space() -> None:
    assert repr(ez.space("nb201")) == "<Space nb201 of 15,625 networks>"
    assert repr(ez.choices(lambda width: nn.Linear(1, width), width=[1, 2])).endswith("of 2 networks: width=1, ...>")


def test_a_plan() -> None:
    plan = ez.space("nb201").plan(ez.space("nb201").parse(CHEAP))
    assert len(repr(plan)) < 100 and f"{plan.params:,} parameters" in repr(plan)
    assert ElementTree.fromstring(plan._repr_svg_()).tag.endswith("svg")


def test_scores() -> None:
    scores = ez.score(CUT, ["params", "snip"], space="nb201", batch_size=2)
    head, params, snip = cells(scores._repr_html_())
    assert head == ["proxy", "value", "status", "why"]
    assert params[:3] == ["params", f"{scores['params'].value:,.0f}", "ok"]
    assert snip[:3] == ["snip", "", "degenerate"] and snip[3]


def test_a_result(result: ez.Result) -> None:
    assert len(repr(result)) < 300
    rows = cells(result._repr_html_())
    assert rows[0] == ["arch", "params"] and rows[1][0] == result.winner.text and len(rows) == 11
    assert "params ranks networks of nb201 with a Spearman correlation" in result._repr_html_()
    front = ez.search("nb201", objectives=["params", "-flops"], budget="10", batch_size=2).front
    assert front is not None and cells(front._repr_html_())[0] == ["arch", "params", "flops"]
    assert len(cells(front._repr_html_())) == 1 + len(front) and "<Front of" in repr(front)


def test_a_ranking() -> None:
    def net(num_classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(48, num_classes))

    ranking = ez.rank({"<first>": net, "second": net}, proxy="snip", batch_size=2, input_shape=(3, 4, 4))
    html = ranking._repr_html_()
    assert cells(html)[0] == ["place", "name", "params", "flops", "memory", "value", "spread", "group", "by_flops"]
    assert {row[1] for row in cells(html)[1:]} == {"<first>", "second"} and "snip was not tested on these" in html
    assert len(repr(ranking)) < 200


def test_frames(result: ez.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    polars = pytest.importorskip("polars")
    frame = result.to_polars()
    assert frame.columns == ["arch", "params"] and frame.height == 12
    assert frame["params"].max() == result.winner.score.value
    assert isinstance(ez.score(CHEAP, "params", space="nb201", batch_size=2).to_polars(), polars.DataFrame)
    given: list[Any] = []
    pandas = ModuleType("pandas")
    pandas.DataFrame = given.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    result.to_pandas()
    assert given == [result.table()]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match=r"A data frame of pandas needs pandas: pip install 'epochzero\[pandas\]'"):
        result.to_pandas()


def test_sizes_as_text() -> None:
    found = ez.search("nb201", "params", "random", 3, batch_size=2, max_params="300k", max_flops="100M")
    assert found.limits.max_params == 300_000 and found.limits.max_flops == 100_000_000
    assert ez.Study("nb201", max_params="0.3M").result().limits.max_params == 300_000
    with pytest.raises(UserError, match=r"max-params takes a number such as 1500000, 1\.5e6 or 1\.5M, not '300 kilo'"):
        ez.search("nb201", "params", max_params="300 kilo")
