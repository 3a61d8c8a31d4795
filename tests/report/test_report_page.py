"""The report in a browser: charts, table, keyboard, phone, hostile names, and a live one that grows."""

from __future__ import annotations

import csv
import http.client
import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from epochzero.report import Subject, write
from epochzero.report.server import Server, server
from epochzero.store import Store
from epochzero.types import Setting
from tests.report.pages import Page
from tests.report.stores import EVIL, SPACE, begin, growing, known, networks, record

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.usefixtures("shallow_nb201")

COUNT = 150
ARCHS = networks(COUNT)
RNG = np.random.default_rng(1)
DEXTR = RNG.normal(size=COUNT).round(6).tolist()
NASWOT = (np.array(DEXTR) + RNG.normal(size=COUNT)).round(6).tolist()
WITHOUT = 7
"""networks without a dextr score, the first ones"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search with everything that a report can show."""
    folder = tmp_path_factory.mktemp("report")
    with Store.open(folder / "run.db") as store:
        run = begin(store)
        record(run, ARCHS, {"dextr": ["cut"] * WITHOUT + DEXTR[WITHOUT:], "naswot": NASWOT})
        run.finish(
            {"best": ARCHS[WITHOUT + int(np.argmax(DEXTR[WITHOUT:]))], "clock": {"scoring": 2.0, "overhead": 1.0}}
        )
    table = known(folder, ARCHS[:100], (90 + np.array(NASWOT[:100])).tolist())
    write(Subject(folder / "run.db", table, ["cifar10_test"]), folder / "report.html")
    return folder / "report.html"


def test_every_chart_has_its_points_and_nothing_is_asked_for(report: Path, opened: Callable[..., Page]) -> None:
    seen = opened(report)
    page = seen.page
    assert [seen.points(f"cost-{cost}") for cost in ("params", "flops")] == [COUNT - WITHOUT] * 2
    assert seen.points("progress") == COUNT - WITHOUT
    classes = {SPACE.key(SPACE.parse(arch)) for arch in ARCHS[:100]}  # a table knows isomorphic networks too
    assert seen.points("truth") == sum(SPACE.key(SPACE.parse(arch)) in classes for arch in ARCHS[WITHOUT:])
    improved = np.maximum.accumulate(DEXTR[WITHOUT:])
    line = int(page.locator("#figure-progress .chart").get_attribute("data-line"))
    assert line == len(np.unique(improved))
    assert (
        page.locator(".heat:not(.importance)").get_attribute("data-cells") == "25"
    )  # two scores, the truth, two costs
    assert page.locator(".network .drawing svg").count() == 5 + 2  # and two that are compared
    assert seen.points("layers") > 10
    assert page.locator("#time figure").count() == 2
    sync_api.expect(page.locator(".chart:not([data-drawn])")).to_have_count(0)
    assert page.evaluate(PAINTED) == [True] * 5
    assert page.locator("h2").all_inner_texts()[-2:] == ["How it was made", "Notes"]
    assert (seen.errors, seen.requests) == ([], [report.as_uri()])


PAINTED = """() => [...document.querySelectorAll(".chart canvas[role=img]")].map((canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let inked = 0;
  for (let i = 3; i < data.length; i += 4) inked += data[i] > 0;
  return inked > 2000;
})"""


def test_sorting_by_mouse_and_by_keyboard(report: Path, opened: Callable[..., Page]) -> None:
    seen = opened(report)
    page = seen.page
    best = [float(cell) for cell in seen.columns("dextr")[:10]]
    assert best == pytest.approx(sorted(DEXTR[WITHOUT:], reverse=True)[:10], rel=1e-4)  # by the objective to begin with
    head = page.locator(".candidates th", has=page.locator("button", has_text="naswot"))
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert float(seen.columns("naswot")[0]) == pytest.approx(max(NASWOT), rel=1e-4)
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert float(seen.columns("naswot")[0]) == pytest.approx(min(NASWOT), rel=1e-4)
    assert page.locator(".candidates [aria-sort]").count() == 1
    page.locator(".candidates th.score button", has_text="dextr").first.press("Space")
    page.locator("#rows").evaluate("box => box.scrollTop = box.scrollHeight")
    sync_api.expect(page.locator(".candidates tbody tr:last-child")).to_have_attribute("aria-rowindex", str(COUNT + 1))
    assert seen.columns("dextr")[-WITHOUT:] == ["–"] * WITHOUT  # what has no score comes last, whichever way
    assert page.locator(".candidates tbody tr[data-network]").count() < 60  # of all
    assert seen.errors == []


def test_every_table_sorts(report: Path, opened: Callable[..., Page]) -> None:
    seen = opened(report)
    page = seen.page

    def column(table: str, place: int) -> list[str]:
        found: list[str] = page.locator(f"{table} tbody tr > :nth-child({place})").all_inner_texts()
        return found

    page.click(".candidates th.arch button")
    assert seen.columns("Network")[0] == min(ARCHS)
    page.click("#sort-forest-1")
    rhos = [float(text) for text in column(".forest", 2)]
    assert len(rhos) > 2 and rhos == sorted(rhos, reverse=True)
    page.click("#sort-forest-1")
    assert [float(text) for text in column(".forest", 2)] == rhos[::-1]
    assert page.locator(".forest [aria-sort=ascending]").count() == 1
    page.locator("#layers details summary").click()
    page.locator("#sort-layers-3").press("Enter")
    sizes = [int(text.replace(",", "")) for text in column("#layers table", 4)]
    assert len(sizes) > 50 and sizes == sorted(sizes, reverse=True)
    page.select_option("#layer", "params")  # draws the section anew
    assert page.locator("#layers th[aria-sort=descending]").inner_text().startswith("Parameters")
    page.locator("#layers details").evaluate("one => one.open = true")
    page.click("#sort-layers-0")
    names = column("#layers table", 1)
    assert names[0].startswith("cell0.") and names[-1].startswith("stem") and len(names) == len(sizes)
    assert seen.errors == []


def test_filtering_and_saving(report: Path, opened: Callable[..., Page]) -> None:
    seen = opened(report)
    page = seen.page
    page.fill("#filter", "skip_connect~0 dextr>0.5")
    wanted = [i for i in range(WITHOUT, COUNT) if "skip_connect~0" in ARCHS[i] and DEXTR[i] > 0.5]
    assert page.locator(".table-box").get_attribute("data-shown") == str(len(wanted))
    with page.expect_download() as download:
        page.click("#csv-networks")
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8"))))
    wanted.sort(key=lambda i: -DEXTR[i])
    assert [row["network"] for row in rows] == [ARCHS[i] for i in wanted]
    assert [float(row["naswot"]) for row in rows] == [NASWOT[i] for i in wanted]
    page.fill("#filter", "cut")
    assert page.locator(".table-box").get_attribute("data-shown") == str(WITHOUT)  # by why there is no score
    page.fill("#filter", "no such network")
    assert page.locator(".nothing").inner_text() == "No network fits the filter."
    for name in ("progress", "cost-params", "truth", "agreement", "layers", "clock", "spearman", "manifest"):
        with page.expect_download() as download:
            page.click(f"#csv-{name}")
        assert Path(download.value.path()).read_text(encoding="utf-8").count("\n") > 2
    assert seen.errors == []


def test_charts_tell_of_points_by_mouse_and_keyboard(report: Path, opened: Callable[..., Page]) -> None:
    seen = opened(report)
    page = seen.page
    chart = page.locator("#figure-progress .chart")
    chart.focus()
    page.keyboard.press("Home")
    assert ARCHS[WITHOUT] in page.locator("#tip").inner_text()
    page.keyboard.press("ArrowRight")
    assert ARCHS[WITHOUT + 1] in page.locator("#said").inner_text()
    page.keyboard.press("Enter")
    assert page.locator(".candidates tr.picked td.arch").inner_text() == ARCHS[WITHOUT + 1]
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    found = False
    for share in np.linspace(0.1, 0.95, 20):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + 0.4 * box["height"])
        found = found or page.locator("#tip").is_visible()
    assert found
    label = page.locator("#figure-truth canvas[role=img]").get_attribute("aria-label")
    assert label.startswith("cifar10_test against dextr.") and "Spearman" in label
    page.click("#forest-naswot")
    assert page.locator("#figure-truth h3").inner_text() == "cifar10_test against naswot"
    assert seen.errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_scrolls_one_way_and_colours_can_be_read(
    report: Path, opened: Callable[..., Page], scheme: str
) -> None:
    seen = opened(report, width=360, scheme=scheme)
    page = seen.page
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    for _ in range(2):
        assert page.evaluate(CONTRAST) >= 4.5
        page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert seen.errors == []


@pytest.mark.parametrize("width", [360, 1280])
def test_labels_of_the_drawings_can_be_read(report: Path, opened: Callable[..., Page], width: int) -> None:
    sizes = opened(report, width=width).page.evaluate(LABELS)
    assert len(sizes) > 20 and min(sizes) >= 8, "pixels"


LABELS = """[...document.querySelectorAll(".drawing .item text:not(.caption, .note)")].map((text) => {
  const svg = text.ownerSVGElement;
  return parseFloat(getComputedStyle(text).fontSize) * svg.clientWidth / svg.viewBox.baseVal.width;
})"""


CONTRAST = """() => {
  const style = getComputedStyle(document.documentElement);
  const pen = document.createElement("canvas").getContext("2d");
  const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = (name) => {
    pen.fillStyle = style.getPropertyValue(name).trim();
    const part = (at) => linear(parseInt(pen.fillStyle.slice(at, at + 2), 16) / 255);
    return 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5);
  };
  const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const texts = ["--text", "--quiet", "--accent", "--winner", "--good", "--warn"].map(light);
  const backs = ["--card", "--page", "--hover", "--chip", "--warn-back"].map(light);
  return Math.min(...texts.flatMap((text) => backs.map((back) => ratio(text, back))));
}"""


def test_names_stay_names(tmp_path: Path, opened: Callable[..., Page]) -> None:
    with Store.open(tmp_path / "run.db") as store:
        run = begin(store, space=EVIL, proxy=EVIL, method=EVIL)
        where = Setting(EVIL, EVIL, EVIL)
        record(
            run,
            [EVIL, f"=1+1{EVIL}", "third", "fourth"],
            {EVIL: [1.0, EVIL, 2.0, 3.0], "b": [1.0, 3.0, 2.0, 1.0]},
            where,
        )
        run.finish({"best": EVIL, EVIL: EVIL})
    write(Subject(tmp_path / "run.db"), tmp_path / "report.html")
    seen = opened(tmp_path / "report.html")
    page = seen.page
    page.click("#theme")
    assert EVIL in page.locator("h1").inner_text() and EVIL in page.locator("#rows").inner_text()
    assert page.locator("img").count() == 0 and page.locator("script").count() == 2
    assert not page.title().startswith("owned")
    with page.expect_download() as download:
        page.click("#csv-networks")
    assert (
        "\n,\"'=1" not in Path(download.value.path()).read_text()
        and ",\"'=1+1<" in Path(download.value.path()).read_text()
    )
    assert (seen.errors, seen.requests) == ([], [(tmp_path / "report.html").as_uri()])


def test_only_failures_and_nothing_yet(tmp_path: Path, opened: Callable[..., Page]) -> None:
    with Store.open(tmp_path / "run.db") as store:
        begin(store, seed=1)
        write(Subject(tmp_path / "run.db"), tmp_path / "nothing.html")
        record(begin(store), ARCHS[:3], {"dextr": ["no labels"] * 3})
    write(Subject(tmp_path / "run.db"), tmp_path / "failures.html")
    nothing, failures = opened(tmp_path / "nothing.html"), opened(tmp_path / "failures.html")
    assert "No network has been evaluated yet." in nothing.page.locator(".notes").inner_text()
    assert "None of the 3 networks has a score." in failures.page.locator(".notes").inner_text()
    assert failures.page.locator(".candidates td.why").first.inner_text() == "dextr failed: no labels"
    assert nothing.errors == failures.errors == []


# ---- live


@contextmanager
def serving(store: Path) -> Iterator[Server]:
    with server(Subject(store)) as made:
        thread = Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield made
        finally:
            made.shutdown()
            thread.join()


def test_a_live_report_grows_and_outlives_its_run(tmp_path: Path, opened: Callable[..., Page]) -> None:
    path = tmp_path / "run.db"
    run = growing(path, ARCHS[:20])
    for _ in range(3):
        next(run)
    with serving(path) as made:
        seen = opened(made.address)
        page = seen.page
        assert seen.points("progress") == 3
        page.fill("#filter", "conv")
        page.locator("#filter").focus()
        for _ in range(4):
            next(run)
        page.wait_for_selector("main[data-ready='7']")
        assert seen.points("progress") == 7 and page.input_value("#filter") == "conv"
        assert page.evaluate("document.activeElement.id") == "filter"
        run.close()  # which leaves the run unfinished
        assert page.locator(".state").inner_text().lower() == "running"
        sync_api.expect(page.locator("#live")).to_have_text("Live")
        assert page.locator("[role=progressbar]").get_attribute("aria-valuenow") == "7"
        assert re.fullmatch(r"7 of 100 evaluations · [\d.]+ a second · .* left", page.locator("#pace").inner_text())
        sync_api.expect(page.locator("#age")).to_have_text(re.compile(r"^last score \d+ s ago$"))
        path.rename(tmp_path / "away.db")
        sync_api.expect(page.locator("#live")).to_contain_text("does not exist", timeout=20_000)
        assert seen.points("progress") == 7
    assert {request.removeprefix(made.address) for request in seen.requests} == {"", "data"}
    assert all("503" in error for error in seen.errors)  # which the browser says of the store that went away


def test_a_run_that_is_killed_in_the_middle_leaves_a_report(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with serving(path) as made:
        assert _asked(made, "/data")[0] == 503
        with subprocess.Popen(
            [sys.executable, "-m", "tests.report.endless_search", str(path)], stdout=subprocess.PIPE, text=True
        ) as search:
            assert search.stdout is not None
            assert "25\n" in search.stdout  # which reads on until then
            first = _asked(made, "/data")
            os.kill(search.pid, signal.SIGKILL)
        after = _asked(made, "/data")
        assert (first[0], after[0]) == (200, 200) and after[1] != b""
        assert _asked(made, "/data", {"If-None-Match": str(after[2]["ETag"])})[0] == 304


def test_nothing_else_is_served(tmp_path: Path) -> None:
    with Store.open(tmp_path / "run.db") as store:
        begin(store)
    with serving(tmp_path / "run.db") as made:
        for path in (
            "/run.db",
            "/../run.db",
            "/%2e%2e/run.db",
            "/data/",
            "/data?x",
            "/index.html",
            "/etc/passwd",
        ):
            assert _asked(made, path)[0] == 404, path
        assert _asked(made, "/", method="POST")[0] == 501
        for path in ("/", "/data"):
            assert _asked(made, path, {"Host": f"evil.example:{made.server_port}"})[0] == 421
        status, body, headers = _asked(made, "/")
        assert status == 200 and b"connect-src 'self'" in body and headers["X-Frame-Options"] == "DENY"


def _asked(
    made: Server, path: str, headers: dict[str, str] | None = None, method: str = "GET"
) -> tuple[int, bytes, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", made.server_port, timeout=20)
    connection.request(method, path, headers=headers or {})
    answer = connection.getresponse()
    found = answer.status, answer.read(), answer.headers
    connection.close()
    return found
