"""The report in a browser: first screen, ranges of choices, two networks and several runs compared, zoom, touch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from epochzero.registry import spaces
from epochzero.report import Subject, write
from epochzero.spaces.nb201 import NB201
from epochzero.store import JSON, Store
from epochzero.types import Setting
from tests.report.pages import Page
from tests.report.stores import SPACE, begin, networks, record

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.usefixtures("shallow_nb201")

COUNT = 80
ARCHS = networks(COUNT)
SCORES = [1.0 + arch.count("nor_conv_3x3") + i / 1000 for i, arch in enumerate(ARCHS)]


@cache
def flops_of(arch: str) -> float:
    """Of the shallow networks of these tests."""
    return float(SPACE.plan(SPACE.parse(arch), 10, (3, 32, 32)).flops)


def searched(path: Path, scores: Sequence[float] = SCORES, **settings: JSON) -> Path:
    with Store.open(path) as store:
        run = begin(store, "search", **settings)
        values: dict[str, Sequence[float | str]] = {"dextr": scores}
        if "," in str(settings.get("proxy", "")):
            values["flops"] = [flops_of(arch) for arch in ARCHS]
        record(run, ARCHS, values, Setting("nb201", "pink-3x32x32", f"default:{settings.get('seed', 0)}"))
        run.finish({"best": ARCHS[int(np.argmax(scores))], "clock": {"scoring": 2.0}})
    return path


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search, beside one of another seed in another store, and one with a third seed in its own."""
    folder = tmp_path_factory.mktemp("compare")
    searched(folder / "a.db", [score - 1 for score in SCORES], seed=2)
    searched(folder / "a.db")
    searched(folder / "b.db", SCORES[::-1], seed=1)
    write(Subject(folder / "a.db", others=[folder / "b.db"]), folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("front")
    write(Subject(searched(folder / "run.db", proxy="dextr,-flops")), folder / "report.html")
    return folder / "report.html"


def test_the_first_screen_has_the_winner_and_three_statements(report: Path, opened: Callable[..., Page]) -> None:
    flops = [flops_of(arch) for arch in ARCHS]
    seen = opened(report)
    page = seen.page
    best = int(np.argmax(SCORES))
    assert page.locator("h1").inner_text() == "Search of nb201 for the best dextr score"
    order = np.argsort(SCORES)[::-1]
    found = page.locator("#statement-found").inner_text()
    assert f"evaluation {best + 1} of {COUNT}" in found and f"{SCORES[best] - SCORES[order[1]]:.4g} ahead" in found
    assert "Counting FLOPs would have chosen" in page.locator("#statement-trust").text_content()
    cheap = next(at for at in order if flops[at] <= flops[best] / 2)
    place = 1 + order.tolist().index(cheap)
    assert f"number {place} of {COUNT}" in page.locator("#statement-cost").inner_text()
    for box in (page.locator(".first-screen .network"), page.locator("#statement-cost")):
        assert box.bounding_box()["y"] + box.bounding_box()["height"] < 860, "one screen"
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for button, text in (("arch", ARCHS[best]), ("train", "epochzero train --from "), ("code", "class Network")):
        page.click(f"#copy-{button}")
        sync_api.expect(page.locator(f"#copy-{button}")).to_have_text("Copied")
        assert text in page.evaluate("navigator.clipboard.readText()")
    page.locator("#statement-cost button").click()  # compares it with the first
    shown = page.locator("#difference .arch-text").all_inner_texts()
    assert shown == [ARCHS[best], ARCHS[cheap]]
    changed = int(page.locator("#difference table").get_attribute("data-changed"))
    assert changed == sum(a != b for a, b in zip(*(SPACE.parse(arch) for arch in shown), strict=True))
    assert (seen.errors, seen.requests) == ([], [report.as_uri()])


def test_a_range_of_a_choice_filters_the_table(report: Path, opened: Callable[..., Page]) -> None:
    flops = [flops_of(arch) for arch in ARCHS]
    seen = opened(report)
    page = seen.page
    page.locator("#choices").scroll_into_view_if_needed()
    axis = page.locator("[data-axis='0 → 1']")
    axis.wait_for()
    axis.scroll_into_view_if_needed()
    liked = [arch for arch in ARCHS if arch.startswith("|nor_conv_3x3~0|")]
    options = sorted({arch.split("~")[0][1:] for arch in ARCHS})
    box = axis.bounding_box()
    share = options.index("nor_conv_3x3") / (len(options) - 1)
    x, y = box["x"] + box["width"] / 2, box["y"] + 8 + (1 - share) * (box["height"] - 16)
    shown = page.locator(".table-box")
    page.mouse.click(x, y)
    assert shown.get_attribute("data-shown") == str(len(liked)) and 0 < len(liked) < COUNT
    assert all(arch.startswith("|nor_conv_3x3~0|") for arch in seen.columns("Network"))
    page.fill("#filter", f"flops<{np.median(flops) / 1e6:.6f}M")
    fewer = [arch for arch, size in zip(ARCHS, flops, strict=True) if arch in liked and size < np.median(flops)]
    assert shown.get_attribute("data-shown") == str(len(fewer))
    page.fill("#filter", "flops < 1g parameters >= 1k")
    assert shown.get_attribute("data-shown") == str(len(liked))
    axis.focus()
    page.keyboard.press("Escape")
    assert shown.get_attribute("data-shown") == str(COUNT)
    score = page.locator("[data-axis='dextr']")
    score.focus()
    for _ in range(10):
        page.keyboard.press("ArrowUp")
    middle = (min(SCORES) + max(SCORES)) / 2
    assert shown.get_attribute("data-shown") == str(sum(one >= middle - 1e-9 for one in SCORES))
    page.mouse.move(*_at(score, 0.9))
    page.mouse.down()
    page.mouse.move(*_at(score, 0.5))
    page.mouse.up()
    assert 0 < int(shown.get_attribute("data-shown")) < sum(one < middle for one in SCORES) + 1
    page.get_by_role("button", name="Clear the ranges").click()
    assert shown.get_attribute("data-shown") == str(COUNT)
    assert page.locator(".importance").get_attribute("data-rows") == "6"
    assert page.locator(".importance thead th").all_inner_texts()[2:] == [
        "avg pool 3x3",
        "none",
        "conv 1x1",
        "conv 3x3",
        "skip",
    ]
    assert (seen.errors, seen.requests) == ([], [report.as_uri()])


def _at(axis: object, down: float) -> tuple[float, float]:
    box = axis.bounding_box()  # type: ignore[attr-defined]
    return box["x"] + box["width"] / 2, box["y"] + down * box["height"]


def test_which_choices_matter_is_computed_as_written(report: Path, opened: Callable[..., Page]) -> None:
    page = opened(report).page
    page.locator("#choices").scroll_into_view_if_needed()
    page.locator(".importance").wait_for()
    percent = 100 * (np.argsort(np.argsort(SCORES)) + 0.5) / COUNT
    first = np.array([SPACE.parse(arch)[0] for arch in ARCHS])
    groups = [percent[first == op] for op in np.unique(first)]
    within = sum(((group - group.mean()) ** 2).sum() for group in groups) / (COUNT - len(groups))
    share = max(0.0, 1 - within / percent.var(ddof=1))
    row = page.locator(".importance tbody tr", has_text="0 → 1").first
    assert float(row.locator("td").first.inner_text()) == pytest.approx(share, abs=0.0051)
    mean = percent[first == "nor_conv_3x3"].mean()
    assert float(row.locator("td").nth(4).inner_text()) == pytest.approx(mean, abs=0.51)


def test_runs_are_compared(report: Path, opened: Callable[..., Page]) -> None:
    seen = opened(report)
    table = seen.page.locator("#compared table")
    assert table.get_attribute("data-runs") == "3"
    cells = [row.locator("th, td").all_inner_texts() for row in table.locator("tbody tr").all()]
    assert [row[2] for row in cells] == ["0", "2", "1"]
    best = [max(SCORES), max(SCORES) - 1, max(SCORES)]
    assert [float(row[4]) for row in cells] == pytest.approx(best, rel=1e-4)
    assert [int(row[5]) for row in cells] == [int(np.argmax(SCORES)) + 1] * 2 + [COUNT - int(np.argmax(SCORES))]
    assert seen.page.locator("#figure-compared path.curve").count() == 3 + 3  # and in the legend
    caption = seen.page.locator("#figure-compared figcaption").inner_text()
    assert f"3 seeds: mean {np.mean(best):.4f}" in caption
    assert seen.errors == []


def test_a_front_is_led_by_its_best_its_knee_and_its_cheap_end(front: Path, opened: Callable[..., Page]) -> None:
    flops = [flops_of(arch) for arch in ARCHS]
    seen = opened(front)
    page = seen.page
    assert page.locator("h1").inner_text() == "Search of nb201 for trade-offs of dextr and FLOPs"
    on_front = [
        i
        for i in range(COUNT)
        if not any(
            SCORES[j] >= SCORES[i] and flops[j] <= flops[i] and (SCORES[j], flops[j]) != (SCORES[i], flops[i])
            for j in range(COUNT)
        )
    ]
    assert int(page.locator("#figure-front .chart").get_attribute("data-line")) == len(on_front)
    cards = page.locator("#found .network")
    assert cards.locator("h3").all_inner_texts() == ["Best", "Knee", "Cheap end"]
    names = cards.locator(".arch-text").all_inner_texts()
    assert names[0] == ARCHS[int(np.argmax(SCORES))] and names[2] == ARCHS[min(on_front, key=lambda i: flops[i])]
    assert f"{len(on_front)} of {COUNT} networks" in page.locator("#statement-found").inner_text()
    assert (seen.errors, seen.requests) == ([], [front.as_uri()])


def test_charts_zoom_by_mouse_and_keys(report: Path, opened: Callable[..., Page]) -> None:
    seen = opened(report)
    page = seen.page
    chart = page.locator("#figure-cost-flops .chart")
    chart.scroll_into_view_if_needed()
    sync_api.expect(chart).to_have_attribute("data-drawn", "")
    before = page.evaluate(INK, "#figure-cost-flops canvas")
    page.mouse.move(*_at(chart, 0.2))
    page.mouse.down()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 0.6 * box["height"])
    page.mouse.up()
    assert chart.get_attribute("data-zoomed") == "true" and page.evaluate(INK, "#figure-cost-flops canvas") != before
    page.mouse.dblclick(box["x"] + 90, box["y"] + 40)
    assert chart.get_attribute("data-zoomed") == "false"
    chart.focus()
    page.keyboard.press("+")
    assert chart.get_attribute("data-zoomed") == "true"
    page.keyboard.press("0")
    assert chart.get_attribute("data-zoomed") == "false" and page.evaluate(INK, "#figure-cost-flops canvas") == before
    page.keyboard.press("End")
    assert page.locator("#tip .drawing svg").count() == 1, "the network is drawn where it is pointed at"
    assert seen.errors == []


INK = "(of) => document.querySelector(of).toDataURL()"


@pytest.mark.parametrize("kind", ["report", "front"])
def test_a_phone_is_touched(kind: str, request: pytest.FixtureRequest, opened: Callable[..., Page]) -> None:
    seen = opened(request.getfixturevalue(kind), width=390, touch=True)
    page = seen.page
    assert seen.overflow == 0
    chart = page.locator("#figure-progress .chart")
    chart.scroll_into_view_if_needed()
    sync_api.expect(chart).to_have_attribute("data-drawn", "")
    box = chart.bounding_box()
    for share in np.linspace(0.9, 0.2, 15):
        at = box["x"] + share * box["width"], box["y"] + 0.5 * box["height"]
        page.touchscreen.tap(*at)
        if page.locator("#tip").is_visible():
            break
    assert page.locator("#tip .name").inner_text() in ARCHS
    page.touchscreen.tap(*at)  # once more: in the table
    assert page.locator(".candidates tr.picked").count() == 1
    page.locator("h1").tap()
    assert page.locator("#tip").is_hidden()
    page.locator("#choices").scroll_into_view_if_needed()
    axis = page.locator(".axis").first
    axis.wait_for()
    axis.scroll_into_view_if_needed()
    page.touchscreen.tap(*_at(axis, 0.03))
    assert 0 < int(page.locator(".table-box").get_attribute("data-shown")) < COUNT
    for table in page.locator("table.plain, table.forest, table.heat").all():
        heads = table.locator("thead th").all() if table.is_visible() else []
        assert all(head.is_visible() for head in heads), "columns stay on a phone"
    assert seen.overflow == 0 and seen.errors == []


def test_landmarks_and_names(report: Path, opened: Callable[..., Page]) -> None:
    page = opened(report).page
    assert [page.locator(one).count() for one in ("main", "body > header", "nav[aria-label]", "h1", "footer")] == [
        1
    ] * 5
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, select, input, [role=img], [role=region], [role=slider]")]
        .filter((one) => !(one.textContent.trim() || one.ariaLabel || one.ariaLabelledByElements?.length
          || one.labels?.length)).map((one) => one.outerHTML)"""
    )
    assert unnamed == []
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    page.locator("#choices[data-filled]").wait_for()
    page.locator("#to-networks").click()
    sync_api.expect(page.locator("#networks h2")).to_be_in_viewport()
    assert page.locator("body > header").bounding_box()["y"] == 0, "the sections stay at hand"


def test_choices_are_read_from_the_texts_of_every_space(browser: Any) -> None:
    """Networks that differ differ in a choice, and no text is one single choice but for spaces of one number."""
    rng = Random(0)
    known = {name: space for name, space in spaces.items() if hasattr(space, "plan") and name != "published"}
    texts = {name: sorted({space.text(space.sample(rng)) for _ in range(25)}) for name, space in known.items()}
    code = (files("epochzero.report") / "choices.js").read_text(encoding="utf-8")
    page = browser.new_page()
    read = page.evaluate(
        f"(of) => {{ {code}; return Object.fromEntries(Object.entries(of).map(([k, v]) => [k, v.map(readChoices)])) }}",
        texts,
    )
    page.close()
    for name, choices in read.items():
        assert len({str(one) for one in choices}) == len(texts[name]), name
        assert all(len(one) > 1 for one in choices) or name == "mlp", name
    cell = dict(read["nb201"][0])
    arch = NB201().parse(texts["nb201"][0])
    edges = ["0 → 1", "0 → 2", "1 → 2", "0 → 3", "1 → 3", "2 → 3"]
    assert [cell[edge] for edge in edges] == list(arch)
    for space, text, name, value in (
        ("mnasnet", "e1k5", "1 e", "1"),
        ("autoformer_tiny", "192:", "width", "192"),
        ("transnas_micro", "64-", "width", "64"),
        ("decoder", "w", "w", ""),
    ):
        (first,) = [one for one, of in zip(read[space], texts[space], strict=True) if of.startswith(text)][:1]
        assert first[0][0] == name and first[0][1].startswith(value)
