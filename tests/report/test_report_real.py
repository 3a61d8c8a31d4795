"""Reports of runs that their commands really made, in a browser: a reproduction, an ensemble, a recommender."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from epochzero.recommend.data.table import open_table
from epochzero.recommend.spaces.nasrec import Nasrec
from epochzero.registry import spaces
from epochzero.report import Subject, write
from tests.report import real_stores
from tests.report.pages import Page
from tests.report.stores import opened as content_of

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

pytestmark = pytest.mark.usefixtures("shallow_nb201")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, shallow_nb201: None) -> Callable[[str], Path]:
    """The store of a kind of run, with its report; each is made once."""

    @cache
    def make(name: str) -> Path:
        store: Path = getattr(real_stores, name)(tmp_path_factory.mktemp(name))
        table = store.parent / "nb201.csv"
        write(Subject(store, table if table.exists() else None), store.with_name(f"{name}.html"))
        return store

    return make


@pytest.mark.parametrize(
    ("name", "charts"),
    [
        ("reproduced", ["cost-params", "cost-flops", "truth", "layers"]),
        ("ensemble", ["cost-params", "cost-flops", "layers"]),
        ("recommender", ["progress", "cost-params", "cost-flops", "truth", "layers"]),
    ],
)
def test_every_kind_of_run_is_readable_on_a_phone_and_on_a_desk(
    made: Callable[[str], Path], opened: Callable[..., Page], name: str, charts: list[str]
) -> None:
    page = made(name).with_name(f"{name}.html")
    for width in (360, 1280):
        seen = opened(page, width=width)
        assert seen.overflow == 0, f"scrolls sideways at {width} pixels"
        assert all(seen.points(chart) > 0 for chart in charts)
        assert seen.page.locator(".chart").count() == len(charts)
        for cut in seen.page.locator(".scrolling").all():
            wide = cut.locator("> :first-child").evaluate("box => box.scrollWidth > box.clientWidth + 1")
            sync_api.expect(cut.locator(".sideways")).to_be_visible(visible=wide)
        assert "[object" not in seen.page.locator("main").inner_text()
        assert (seen.errors, seen.requests) == ([], [page.as_uri()])


def test_a_reproduction_stands_beside_the_paper(made: Callable[[str], Path], opened: Callable[..., Page]) -> None:
    store = made("reproduced")
    head = content_of(store, table=store.parent / "nb201.csv").head
    figures = {figure["name"]: figure for figure in head["figures"]}
    assert len(figures) == 18, "six proxies on three targets"
    zico = figures["nb201 on cifar100: zico, NB201-C100"]
    assert (zico["paper"], zico["n"], zico["statistic"]) == (0.79, 6, "spearman")
    assert -1 <= zico["low"] <= zico["value"] <= zico["high"] <= 1
    names = [column["name"] for column in head["columns"] if column["kind"] == "score"]
    assert {"dextr@cifar10", "dextr@cifar100"} < set(names) and len(names) == 2 * 5, "of each data set its own"
    assert {row["truth"] for row in head["truths"]} == {"cifar10_test"}
    (spent,) = head["time"]["scoring"]
    assert spent.endswith("scored together")
    page = opened(store.with_name("reproduced.html")).page
    (row,) = [row for row in page.locator(".measured tbody tr").all() if "zico, NB201-C100" in row.inner_text()]
    sign = "+" if zico["value"] > 0.79 else ""
    assert row.locator("td.number").all_inner_texts() == [
        f"{zico['value']:.3f}", "0.790", f"{sign}{zico['value'] - 0.79:.3f}", "6"
    ]  # fmt: skip
    dots = row.locator(".interval b, .interval u").evaluate_all("all => all.map((one) => parseFloat(one.style.left))")
    assert dots == pytest.approx([50 + 50 * zico["value"], 50 + 50 * 0.79], abs=0.01)


def test_an_ensemble_has_members_and_no_order(made: Callable[[str], Path], opened: Callable[..., Page]) -> None:
    page = opened(made("ensemble").with_name("ensemble.html")).page
    heads = page.locator("h2").all_inner_texts()
    assert "The ensemble of 3" in heads and "Score and truth" not in heads
    assert "averages their predictions" in page.locator("#found .about").inner_text()
    assert page.locator(".network h3").all_inner_texts() == ["Member 1", "Member 2", "Member 3"]
    told = page.locator("#result").inner_text()
    assert "average test error" in told and "calibration" in told
    assert page.locator("#rows").evaluate("box => box.clientHeight") < 250, "three rows"


def test_a_recommender_is_drawn_for_its_own_table(made: Callable[[str], Path]) -> None:
    store = made("recommender")
    found = content_of(store)
    told = json.loads((store.parent / "result.json").read_text(encoding="utf-8"))
    place = {arch: at for at, arch in enumerate(found.head["archs"])}
    space = spaces["nasrec_small"]
    assert isinstance(space, Nasrec)
    table = open_table(store.parent / "table")
    scored = space.on(table.num_dense, table.rows)  # with layer norms, as in the supernet
    chosen = [one["arch"] for one in told["candidates"] if one["arch"] in place]  # the others are random ones
    assert chosen
    for arch in chosen:
        at, plan = place[arch], scored.plan(scored.parse(arch))
        sizes = plan.params - scored.embedding_params, plan.flops
        assert (found.columns["params"][at], found.columns["flops"][at]) == sizes
    first = found.head["drawings"][0]
    assert ">3, 5 " in first["svg"], "dense and categorical features"
    assert set(found.head["time"]["around"]) == {"warm-up", "training from scratch"}
    assert found.head["time"]["around"]["warm-up"] == pytest.approx(told["stages"]["warm-up"], rel=0.01)
