"""README and docs: Python blocks run, command lines are ones that there are, links lead somewhere, the site builds."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from epochzero.cli.loading import loaded
from epochzero.moved import new_name
from tests.forgetting import plugins_forgotten
from tests.test_guides import BLOCK, FILE, here

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GENERATED = ("proxies/", "spaces/", "leaderboard/", "reference/commands/")
"""folders that `make docs` writes"""
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(page for page in sorted(DOCS.rglob("*.md")) if not str(page.relative_to(DOCS)).startswith(GENERATED)),
]
RUN_ELSEWHERE = {
    "your-own-space.md": "test_guides.py",
    "trusting-a-score.md": "evaluate/test_bench_guide.py",
    "benchmark-tables.md": "tables/test_guide.py",
    "recommenders.md": "recommend/test_recommender_guide.py",
    "tutorial.md": "test_tutorial.py",
}
"""pages with a test of their own, which checks the output"""
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
    "README.md": "Counting FLOPs would put wider first; Kendall's tau of the two orders is 0.80.\n",
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
        assert any(DOCS.rglob(guide)) and guide in (ROOT / "tests" / test).read_text(encoding="utf-8")
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
def test_every_command_is_one_that_there_is(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for _, code in BLOCK.findall(text):  # an option such as --space FILE.py:NAME reads a file of the page
        if named := FILE.match(code):
            with Path(named[1]).open("a", encoding="utf-8") as file:
                file.write(code[named.end() :])
    for line in whole_commands(text):
        try:
            with plugins_forgotten():
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
            made = str(target.relative_to(DOCS)).startswith(GENERATED) if target.is_relative_to(DOCS) else False
            assert target.exists() or made, f"{called(page)} links {link}"  # tests/test_site.py looks at those made
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
    named = set()
    for page in PAGES:
        for block in re.findall(
            r"^```{toctree}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        ):
            named |= {str(Path(called(page.parent)) / line) for line in re.findall(r"^([\w/-]+)$", block, re.MULTILINE)}
    ours = {called(page.with_suffix("")) for page in PAGES if DOCS in page.parents}
    assert named == {page for page in ours if page != "docs/index" and not page.startswith("docs/data/")}
