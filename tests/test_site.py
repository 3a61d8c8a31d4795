"""The documentation site: its generated pages; it builds without a warning and loads nothing from elsewhere."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pytest

from epochzero.registry import proxies, searches, spaces
from epochzero.supernet import methods
from tests.fresh import Fresh
from tests.test_docs import COMMAND, DOCS, GENERATED, PAGES, check_command, whole_commands

with patch.object(sys, "path", [str(DOCS), *sys.path]):  # they are no package
    import catalogue  # type: ignore[import-not-found]
    import check  # type: ignore[import-not-found]
    import pages  # type: ignore[import-not-found]
    import proxy_pages  # type: ignore[import-not-found]


BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@cache
def generated() -> dict[str, str]:
    made: dict[str, str] = dict(catalogue.generated())
    return made


def test_every_generated_file_is_ignored_by_git_and_linked() -> None:
    assert all(path.startswith(GENERATED) for path in generated())
    ignored = (DOCS / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert set(ignored) - {"# written by `make docs`"} == set(GENERATED)


def texts() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        if DOCS in page.parents:
            name = str(page.relative_to(DOCS).with_suffix(""))
            yield page, catalogue.source(name, page.read_text(encoding="utf-8"))
    for path, text in generated().items():
        if path.endswith(".md"):
            yield DOCS / path, text


def test_links_to_generated_pages_lead_somewhere() -> None:
    linked = set()
    for page, text in texts():
        for link in re.findall(r"\]\(([^)\s#]+\.(?:md|svg))\)", text):
            target = (page.parent / link).resolve()
            inside = str(target.relative_to(DOCS)) if target.is_relative_to(DOCS) else ""
            assert target.exists() or inside in generated(), f"{page} links {link}"
            linked.add(inside)
    assert {path for path in generated() if path not in linked} == set()


def test_every_proxy_has_its_page() -> None:
    for card in proxy_pages.all_cards():
        page = generated()[f"proxies/{proxy_pages.file_of(card.name)}.md"]
        assert card.formula in page and f"**{card.better.capitalize()} is better.**" in page
        assert all(f"| `{option.name}` |" in page for option in card.options)
        assert "## Weaknesses\n\n- " in page and card.citation[:20] in page
        assert page.count("\N{NO-BREAK SPACE}[") >= len(card.measured)
        assert all(line.count("[") == line.count("]") for line in page.splitlines() if line.startswith("| "))
    assert {proxy_pages.file_of(card.name) for card in proxy_pages.all_cards()} == {"auto", *proxies}
    assert "985 (15) | 0.892\N{NO-BREAK SPACE}[0.875,\N{NO-BREAK SPACE}0.905] |" in generated()["proxies/dextr.md"]


def test_formulas_are_drawn() -> None:
    assert set(proxy_pages.formulas()) <= {"auto", *proxies}
    for name in proxy_pages.formulas():
        drawn = proxy_pages.formula(name)
        assert drawn.count("<math") == drawn.count("</math>") == len(proxy_pages.formulas()[name].strip().splitlines())
        assert "\\" not in drawn, f"{name}: a command of TeX is left"
    assert proxy_pages.formula("new_proxy") == ""


def test_places_are_those_of_the_leaderboard() -> None:
    page = generated()["proxies/dextr.md"]
    row = next(line for line in (DOCS / "leaderboard.md").read_text().splitlines() if line.startswith("| `dextr` |"))
    mean, worst = row.split(" | ")[1:3]
    assert f"**{mean}**" in page and worst in page and '<svg class="dots"' in page
    assert (
        "It is not on the [leaderboard]" in generated()["proxies/nasi_trace.md"]
        or "nasi_trace" in proxy_pages.standings()
    )


def test_every_space_search_and_command_is_there() -> None:
    table = catalogue.PARTS["spaces"]()
    for name in spaces:
        page = generated()[f"spaces/{name}.md"]
        assert f"](../spaces/{name}.md)" in table and "## Example" in page
        assert (f"({name}.svg)" in page) == (f"spaces/{name}.svg" in generated())
    assert "15,625" in generated()["spaces/nb201.md"] and "<svg" in generated()["spaces/nb201.svg"]
    by_name = sections(pages.all_searches())
    assert list(by_name) == [*searches, *methods]
    assert "population=50" in by_name["evolution"] and "```text\np_e(o) = softmax" in by_name["reinforce"]
    names = dict(pages.commands_of(COMMAND))
    assert "data import" in names
    for name, command in names.items():
        page = generated()[f"reference/commands/{name.replace(' ', '-')}.md"]
        for item in command.params:
            assert all(f"`{option}`" in page for option in item.opts if option[0] == "-")


def sections(text: str) -> dict[str, str]:
    _, *found = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    return {title.replace("\\", ""): body for title, body in zip(found[::2], found[1::2], strict=True)}


def test_generated_commands_are_ones_that_there_are() -> None:
    lines = {(path, line) for path, text in generated().items() for line in whole_commands(text)}
    assert len(lines) > 100
    for path, line in sorted(lines):
        try:
            check_command(line)
        except Exception as error:
            raise AssertionError(f"{path}: {line}: {error}") from error


@pytest.mark.parametrize("part", ["proxies", "spaces", "searches", "commands"])
def test_rows_have_as_many_cells_as_their_table(part: str) -> None:
    rows_fit(catalogue.PARTS[part]())


def test_so_do_those_of_generated_pages() -> None:
    for text in generated().values():
        rows_fit(text)


def rows_fit(text: str) -> None:
    width = 0
    for line in text.splitlines():
        if line.startswith("| "):
            cells = len(re.findall(r"(?<!\\)\|", line))
            width = width or cells
            assert cells == width, line
        else:
            width = 0


def test_text_means_nothing_in_markdown() -> None:
    assert pages.escaped("a_b * <c> [d](e) `f_g|`") == r"a\_b \* \<c\> \[d\](e) `f_g|`"
    assert pages.cell("a | `b|c`\n d") == r"a \| `b\|c` d"
    assert list(pages.docstring("One *x*.\n\n    a = b_c\n\nOptions:\n    d    e")) == [
        r"One \*x\*.",
        "```text\na = b_c\n```",
        "Options:",
        "```text\nd    e\n```",
    ]


def test_the_site_builds_without_a_warning_and_stays_offline(tmp_path: Path, fresh: Fresh) -> None:
    """A few pages of it, generated ones among them; `make docs` builds all of it."""
    source, site = tmp_path / "docs", tmp_path / "site"
    for folder in ("reference/commands", "proxies", "spaces", "images"):
        (source / folder).mkdir(parents=True)
    shutil.copytree(DOCS / "_static", source / "_static")
    for file in DOCS.glob("*.py"):
        shutil.copy(file, source / file.name)
    for name in ("formulas.toml", "reference/python.md", "images/logo.svg"):
        shutil.copy(DOCS / name, source / name)
    some = ("proxies/dextr.md", "spaces/nb201.md", "spaces/nb201.svg", "reference/commands/search.md")
    for path in some:
        (source / path).write_text(generated()[path], encoding="utf-8")
    listed = "\n".join(path.removesuffix(".md") for path in (*some, "reference/python") if not path.endswith(".svg"))
    (source / "index.md").write_text(f"# Site\n\n```{{toctree}}\n{listed}\n```\n")
    settings = ("-D", "generate_pages=0", "-D", "suppress_warnings=myst.xref_missing")  # most links lead to other pages
    built = fresh.module("sphinx", "--quiet", "--fail-on-warning", "--keep-going", *settings, source, site)
    assert built.code == 0, built.err
    commands, names, proxy = (
        (site / f"{page}.html").read_text(encoding="utf-8")
        for page in ("reference/commands/search", "reference/python", "proxies/dextr")
    )
    assert "--max-params" in commands and "<math" in proxy and "copybutton" in proxy
    assert 'id="epochzero.score"' in names and "left exactly as it was" in names
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=\"(https?:)?//", commands + names + proxy)


def test_pages_count_the_proxies() -> None:
    own = sum(proxies.origins[name].startswith("epochzero") for name in proxies)
    assert f"\n  {own} proxies, each with" in (DOCS / "index.md").read_text(encoding="utf-8")
    assert f"\n| training-free proxies | {own} |" in (DOCS.parent / "README.md").read_text(encoding="utf-8")


BAD = """<html lang="en"><body><main><article><h1>A</h1><h1>B</h1><p style="color: #bbb">faint</p><img src="none.png">
<div style="width: 2000px; height: 13000px">wide</div></article></main>
<script>console.error("oh")</script></body></html>"""
GOOD = """<html lang="en"><body><main><article><h1>A</h1><p>plain</p></article></main></body></html>"""


@pytest.mark.skipif(not any(map(shutil.which, BROWSERS)), reason="there is no Chromium")
def test_the_check_of_the_site_finds_what_is_wrong(tmp_path: Path) -> None:
    for name, text in (("bad", BAD), ("good", GOOD)):
        (tmp_path / f"{name}.html").write_text(text, encoding="utf-8")
    found = check.problems(tmp_path)
    assert not [line for line in found if "good.html" in line]
    for told in ("pixels long", "sideways", "2 titles", "no alternative", "no such image", "faint 1.", "oh"):
        assert any(told in line for line in found), (told, found)
