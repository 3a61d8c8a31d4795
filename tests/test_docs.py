"""README and docs: Python blocks run, command lines are ones that there are, links lead somewhere, the site builds."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from epochzero.cli.loading import loaded
from epochzero.moved import new_name
from epochzero.objectives.auto import NEWEST
from epochzero.objectives.objective import parse_objective
from epochzero.registry import proxies, searches, spaces
from epochzero.supernet import methods
from tests.forgetting import plugins_forgotten
from tests.fresh import Fresh
from tests.test_guides import BLOCK, FILE, here

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
RUN_ELSEWHERE = {
    "your-own-space.md": "test_guides.py",
    "trusting-a-score.md": "evaluate/test_bench_guide.py",
    "benchmark-tables.md": "tables/test_guide.py",
    "recommenders.md": "recommend/test_recommender_guide.py",
}
"""guides with a test of their own, which checks the output"""
WHOLE = [ROOT / "README.md", DOCS / "guides" / "tour.md"]
"""pages that print facts of networks of nb201 in full depth, and so run first"""
RUN_HERE = [
    page
    for page in dict.fromkeys([*WHOLE, *PAGES])
    if page.name not in RUN_ELSEWHERE
    and page.parent.name != "data"  # how its scores were made, which takes hours
    and {"python", "sh"} & {language for language, _ in BLOCK.findall(page.read_text(encoding="utf-8"))}
]
COMMAND = loaded()


def called(page: Path) -> str:
    return str(page.relative_to(ROOT))


def module(file: Path) -> Any:
    """A Python file of the docs, which are no package."""
    spec = importlib.util.spec_from_file_location(f"docs_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


pages = module(DOCS / "pages.py")


# ---- code


def do(page: Path, folder: Path) -> None:
    """Does what a reader would do: saves the files, runs the commands, and runs the rest in one Python session."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for language, code in BLOCK.findall(page.read_text(encoding="utf-8")):
        if named := FILE.match(code):
            with (folder / named[1]).open("a", encoding="utf-8") as file:
                file.write(code[named.end() :])
        elif language == "sh":
            for line in code.replace("\\\n", "").strip().splitlines():
                with plugins_forgotten():
                    print(here(line))
        elif language == "python":
            exec(compile(code, called(page), "exec"), names)


SHOWS = {
    "README.md": "Counting FLOPs would put wider first; Kendall's tau of the two orders is 0.40.\n",
    "docs/guides/tour.md": "1288506 184730240\n",
    "docs/guides/your-own-proxy.md": "spread(scaled=true)",
    "docs/guides/your-own-data.md": "160 20 20 (4, 1000)",
    "docs/guides/from-winner-to-product.md": "['0', '1', '2', '3'] torch.Size([1, 4])",
    "docs/guides/understanding.md": "width 3.5c   depth 3",
}
"""text that a page has to print"""


@pytest.mark.usefixtures("onnx_rules")
@pytest.mark.parametrize("page", RUN_HERE, ids=called)
def test_the_code_runs(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    if page not in WHOLE:  # elsewhere it does not matter what they print of a network
        request.getfixturevalue("shallow_nb201")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with plugins_forgotten():
        do(page, tmp_path)
    assert SHOWS.get(called(page), "") in capsys.readouterr().out


def test_guides_that_are_run_elsewhere_are() -> None:
    for guide, test in RUN_ELSEWHERE.items():
        assert (DOCS / "guides" / guide).is_file() and guide in (ROOT / "tests" / test).read_text(encoding="utf-8")
    assert set(SHOWS) <= set(map(called, RUN_HERE))


# ---- commands


def whole_commands(text: str) -> Iterator[str]:
    """`epochzero ...` in blocks, fenced or indented, with the lines that go on after a backslash."""
    fenced, before = False, ""
    for line in text.splitlines():
        if line.strip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            whole = before + line.strip()
            before = whole.removesuffix("\\") if whole.endswith("\\") else ""
            if not before and whole.startswith("epochzero "):
                yield whole


def mentioned_commands(text: str) -> list[str]:
    """`epochzero ...` within a sentence, where something may be left out."""
    return re.findall(r"`(epochzero [^`]+)`", text)


def found(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the words name, and the words behind its name."""
    command: Any = COMMAND
    while hasattr(command, "commands"):
        name, *words = words or ["nothing"]
        assert name in command.commands, f"there is no command {name}"
        command = command.commands[name]
    return command, words


def check_command(line: str) -> None:
    """As the program itself reads it: names, kinds of values, and what is required."""
    command, words = found(shlex.split(line, comments=True)[1:])
    command.make_context(line, words)


def check_mention(text: str) -> None:
    """The names alone."""
    words = text.split()[1:]
    if words[0].startswith("-") or words[0] == "COMMAND":
        return
    command, words = found(words)
    known = {name for item in command.params for name in (*item.opts, *item.secondary_opts)} | {"--help"}
    for word in words:
        if word.startswith("--"):
            assert word.split("=")[0].rstrip(",.;") in known, f"{text}: no option {word}"


@pytest.mark.parametrize("page", PAGES, ids=called)
def test_every_command_is_one_that_there_is(page: Path) -> None:
    text = pages.filled(page.read_text(encoding="utf-8"))
    for line in whole_commands(text):
        try:
            check_mention(line) if "..." in line.split() else check_command(line)
        except Exception as error:
            raise AssertionError(f"{line}: {error}") from error
    for mention in mentioned_commands(text):
        check_mention(mention)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("epochzero serch --space nb201", "no command serch"),
        ("epochzero search --spce nb201", "No such option"),
        ("epochzero search --budget many", "integer"),
        ("epochzero train --arch x", "Missing parameter"),
        ("epochzero data imprt x", "no command imprt"),
    ],
)
def test_a_wrong_command_would_be_found(line: str, says: str) -> None:
    (read,) = whole_commands(f"Text\n\n    {line[:12]}\\\n        {line[12:]}\n")
    assert read.split() == line.split()
    with pytest.raises(Exception, match=says):
        check_command(read)


# ---- links


def anchors(page: Path) -> set[str]:
    """Returns GitHub's anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=called)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", text)):
        if "://" not in link:
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), f"{called(page)} links {link}"
            assert not anchor or anchor in anchors(target), f"{called(page)} links {link}"


GROUPS = {f"epochzero.{name}" for name in ("proxies", "spaces", "searches", "tables", "experiments", "commands")}
"""entry-point groups, which look like modules"""
FOLDERS = (ROOT, ROOT / "src" / "epochzero", ROOT / "papers" / "src" / "epochzero_papers")


def resolves(name: str) -> bool:
    """Returns True for a module, or for a name in one, by its present path."""
    if new_name(name):
        return False
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            thing: Any = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for part in parts[end:]:
            thing = getattr(thing, part, None)
        return thing is not None
    return False


@pytest.mark.parametrize("page", [*PAGES, ROOT / "papers" / "README.md"], ids=called)
def test_every_module_and_file_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    names = set(re.findall(r"(?<![\w./-])epochzero(?:_papers)?(?:\.[a-zA-Z]\w*)+", text)) - GROUPS
    assert not [name for name in names if not name.endswith((".db", ".toml")) and not resolves(name)]
    paths = set(re.findall(r"`((?:[\w.-]+/)+[\w.*-]+\.(?:py|md|csv|toml))`", text))
    written = set(re.findall(r"^# file: (\S+)", text, re.MULTILINE))
    missing = [path for path in paths if path.split("/")[0] not in ("product", "runs", "trained", "front")]
    assert not [p for p in missing if p not in written and not any(any(folder.glob(p)) for folder in FOLDERS)]


def test_the_site_has_every_page() -> None:
    named = re.findall(r"^([\w/-]+)$", (DOCS / "index.md").read_text(encoding="utf-8"), re.MULTILINE)
    ours = {str(page.relative_to(DOCS).with_suffix("")) for page in PAGES if DOCS in page.parents}
    assert set(named) == {page for page in ours if page != "index" and not page.startswith("data/")}


# ---- what is generated


def sections(text: str) -> dict[str, str]:
    _, *found = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    return {title.replace("\\", ""): body for title, body in zip(found[::2], found[1::2], strict=True)}


def test_every_proxy_has_its_section() -> None:
    by_name = sections(pages.all_proxies())
    assert list(by_name) == [f"auto:{NEWEST}", *proxies]
    for name, body in by_name.items():
        card = pages.card_of(parse_objective(name))
        assert card.formula in body and f"**{card.better.capitalize()} is better.**" in body
        assert all(f"| `{option.name}` |" in body for option in card.options)
        assert "**Beware**\n\n- " in body
        assert body.count(" [") >= len(card.measured)
    assert "| `dextr` | nb201 | cifar10 | cifar10\\_test | 985 (15) | 0.892 [0.875, 0.905] |" in by_name["dextr"]


def test_every_search_space_and_command_is_there() -> None:
    by_name = sections(pages.all_searches())
    assert list(by_name) == [*searches, *methods]
    assert "population=50" in by_name["evolution"] and "```text\np_e(o) = softmax" in by_name["reinforce"]
    table = pages.all_spaces()
    assert all(f"| `{name}` |" in table for name in spaces)
    by_command = sections(pages.all_commands())
    names = dict(pages.commands_of(COMMAND))
    assert list(by_command) == [f"epochzero {name}" for name in names] and "data import" in names
    for name, command in names.items():
        for item in command.params:
            assert all(f"`{option}`" in by_command[f"epochzero {name}"] for option in item.opts if option[0] == "-")


@pytest.mark.parametrize("part", ["proxies", "spaces", "searches", "commands"])
def test_rows_have_as_many_cells_as_their_table(part: str) -> None:
    width = 0
    for line in pages.PARTS[part]().splitlines():
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


# ---- the site


def test_the_site_builds_without_a_warning_and_stays_offline(tmp_path: Path, fresh: Fresh) -> None:
    """Two pages of it, the generated command line and the public names; `make docs` builds all of it."""
    source, site = tmp_path / "docs", tmp_path / "site"
    (source / "reference").mkdir(parents=True)
    shutil.copytree(DOCS / "_static", source / "_static")
    for name in ("conf.py", "pages.py", "reference/command-line.md", "reference/python.md"):
        shutil.copy(DOCS / name, source / name)
    (source / "index.md").write_text("# Site\n\n```{toctree}\nreference/command-line\nreference/python\n```\n")
    built = fresh.module("sphinx", "--quiet", "--fail-on-warning", "--keep-going", source, site)
    assert built.code == 0, built.err
    commands = (site / "reference" / "command-line.html").read_text(encoding="utf-8")
    names = (site / "reference" / "python.html").read_text(encoding="utf-8")
    assert '<section id="epochzero-search">' in commands and "--max-params" in commands
    assert 'id="epochzero.score"' in names and "left exactly as it was" in names
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=\"(https?:)?//", commands + names)
