"""The page of a trained recommender."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

from epochzero.registry import spaces
from tests.command import epochzero, refusal
from tests.recommend.test_census import SHOP, shop_rows, written


class Cells(HTMLParser):
    """The texts of the cells of all tables, row by row."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
            self.inside = True

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.rows[-1][-1] += data


def test_the_page_shows_what_the_training_measured(tmp_path: Path) -> None:
    """Also with a hostile value of a segment, which stays text."""
    rows = [row | {"city": "<b>Oslo</b>" if row["city"] == "Oslo" else row["city"]} for row in shop_rows(800, 0)]
    written(tmp_path / "shop.csv", rows)
    (tmp_path / "shop.json").write_text(json.dumps(SHOP.json()))
    space = spaces["nasrec_small"]
    told = epochzero(
        "recommend", "train", f"--data={tmp_path}/shop.csv", f"--schema={tmp_path}/shop.json", "--group=item",
        f"--arch={space.text(space.smallest())}", f"--out={tmp_path}/run", "--segment=city", "--temperature", "--json",
    ).json  # fmt: skip
    ran = epochzero("report", tmp_path / "run", f"--out={tmp_path}/page.html", "--json")
    page = (tmp_path / "page.html").read_text()
    assert ran.json["bytes"] == len(page.encode()) and "<svg" in page and "<b>" not in page
    cells = {row[0]: row[1:] for row in Cells(page).rows if row}
    quality = [told["quality"][part] for part in ("val", "test")]
    assert cells["calibration error"] == [f"{one['calibration']['error']:.4g}" for one in quality]
    assert cells["AUC within 'item'"] == [f"{one['gauc']['value']:.4g}" for one in quality]
    assert cells["log loss"] == [f"{told['metrics'][part]['log_loss']:.4g}" for part in ("val", "test")]
    (oslo,) = [one for one in quality[1]["segments"]["values"] if one["value"] == "<b>Oslo</b>"]
    assert cells["<b>Oslo</b>"][:2] == [str(oslo["rows"]), f"{oslo['rate']:.4g}"]
    missing = sum(row["city"] == "" for row in rows) / 800
    assert next(row for row in Cells(page).rows if row[:2] == ["city", "vocabulary"])[2] == f"{missing:.1%}"
    assert cells["seed"] == ["0"]
    (tmp_path / "run" / "recommender.json").write_text("{}")
    assert "is damaged, or of an earlier version" in refusal("report", tmp_path / "run", f"--out={tmp_path}/page.html")
