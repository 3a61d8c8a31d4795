"""`--plugin` on the command line: files and modules that register spaces, proxies and searches; and their mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from epochzero.registry import spaces
from tests.command import epochzero, refusal
from tests.forgetting import plugins_forgotten

SPACE = '''
"""Lines: one linear layer, with a hidden one of some units before it."""
from torch import nn
from epochzero.registry import spaces
from epochzero.spaces.mlp import MLP

class Lines(MLP):
    name = "{name}"

spaces.register("{name}", Lines())

class Built:
    name = "{name}_built"
    def __init__(self):
        for method in ("parse", "text", "sample", "mutate", "neighbours", "smallest"):
            setattr(self, method, getattr(MLP(), method))
    def build(self, arch):
        return nn.Sequential(nn.Flatten(), nn.Linear(3072, arch), nn.ReLU(), nn.Linear(arch, 10))

spaces.register("{name}_built", Built())
'''


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    with plugins_forgotten():
        yield


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    file = tmp_path / "lines.py"
    file.write_text(SPACE.format(name="lines"))
    return file


def test_listed_scored_and_searched(plugin: Path, tmp_path: Path) -> None:
    listed = {row["name"]: row for row in epochzero("list", "spaces", "--plugin", plugin, "--json").json["spaces"]}
    assert {"lines", "lines_built", "nb201"} <= set(listed)
    assert listed["lines"]["about"].startswith("Lines: one linear layer")
    few = ("--plugin", plugin, "--batch-size", 4, "--json")
    for name in ("lines", "lines_built"):
        image = ("--input-shape", "3,32,32")
        scored = epochzero("score", "--space", name, "--arch", "4", "--proxy", "snip", *image, *few).json
        assert scored["params"] == 3072 * 4 + 4 + 4 * 10 + 10 and scored["flops"] == 3072 * 4 + 40
        assert scored["scores"]["snip"]["status"] == "ok"
        limits = ("--max-params", "30k", "--out", tmp_path / name, *image)
        found = epochzero("search", "--space", name, "--proxy", "params", "--budget", 4, *limits, *few).json
        assert found["best"]["arch"] in {"2", "4", "6", "8"} and found["best"]["params"] <= 30_000
    assert "ReLU()" in (tmp_path / "lines_built" / "layers.txt").read_text()
    assert not (tmp_path / "lines_built" / "model.py").exists()


def test_benched(plugin: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("arch_str,accuracy\n" + "".join(f"{units},{units}\n" for units in range(2, 26, 2)))
    known = ("--table", table, "--target", "accuracy", "--proxy", "params,flops")
    for name in ("lines", "lines_built"):
        ran = epochzero("bench", "--plugin", plugin, "--space", name, *known, "--batch-size", 2, "--json").json
        assert [row["spearman"] for row in ran["results"]] == pytest.approx([1, 1])


def test_people_are_told_what_there_is_not(plugin: Path, tmp_path: Path) -> None:
    search = ("search", "--plugin", plugin, "--space", "lines_built", "--proxy", "params", "--budget", 2)
    ran = epochzero(*search, "--batch-size", 2, "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert "(2): ReLU()" in ran.out and "multiply-accumulates" in ran.out
    assert "layers.txt, winner.json" in " ".join(ran.err.split())
    assert "lines_built gives modules: no drawing, no printed code" in ran.err


def test_the_input_shape_of_noise(plugin: Path) -> None:
    search = ("search", "--plugin", plugin, "--space", "lines", "--proxy", "params", "--budget", 1, "--json")
    best = epochzero(*search, "--data", "white", "--input-shape", "7").json["best"]
    assert best["params"] == (7 + 1 + 10) * int(best["arch"]) + 10


def test_given_twice_it_runs_once(plugin: Path) -> None:
    assert epochzero("list", "spaces", "--plugin", plugin, "--plugin", plugin).code == 0


def test_a_proxy_and_a_module_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "an_epochzero_plugin.py").write_text(
        dedent("""
        from epochzero.engine import Pass, Trace, need, proxy

        @proxy(needs=[need(Pass(), "weights")], higher_is_better=True)
        def weight_tensors(trace: Trace) -> float:
            return len(trace.weights)
        """)
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    arch = ("score", "--space", "mlp", "--arch", "4", "--batch-size", 2)
    ran = epochzero(*arch, "--plugin", "an_epochzero_plugin", "--proxy", "weight_tensors", "--json")
    assert ran.json["scores"]["weight_tensors"]["value"] == 2


@pytest.mark.parametrize("command", ["list spaces", "score --arch 4", "search", "bench --table x.csv --target y"])
def test_every_command_takes_it(command: str) -> None:
    assert refusal(*command.split(), "--plugin", "missing.py") == "There is no file 'missing.py' to run."


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("import a_module_that_is_not_there", "plugin.py' raised ModuleNotFoundError: No module named"),
        ("def f(:", "plugin.py' raised SyntaxError: invalid syntax"),
        ("raise SystemExit(3)", "plugin.py' raised SystemExit: 3"),
        (SPACE.format(name="nb201"), "plugin.py' raised ValueError: A space called 'nb201' is registered already"),
    ],
)
def test_mistakes_in_it_are_its_own(tmp_path: Path, content: str, says: str) -> None:
    file = tmp_path / "plugin.py"
    file.write_text(content)
    assert says in refusal("list", "spaces", "--plugin", file)


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        (
            "no_such_module",
            "There is no module 'no_such_module' to plug in: install it, or give the path of a file.py.",
        ),
        ("no.such.module", "There is no module 'no.such.module' to plug in"),
        ("not a name", "There is no module 'not a name' to plug in"),
        ("", "There is no file '' to run."),
        (".", "There is no file '.' to run."),
    ],
)
def test_what_cannot_be_found(reference: str, says: str) -> None:
    assert says in refusal("list", "spaces", "--plugin", reference)


def test_a_space_that_lacks_methods(tmp_path: Path) -> None:
    file = tmp_path / "plugin.py"
    file.write_text('from epochzero.registry import spaces\nspaces.register("half", object())\n')
    search = ("search", "--plugin", file, "--space", "half", "--proxy", "params", "--budget", 1)
    assert "The space 'object' lacks name, parse, text" in refusal(*search)


def test_the_example_of_a_small_darts_is_searched_by_hnas() -> None:
    """Its winner is an architecture of darts."""
    pytest.importorskip("bayes_opt")
    example = Path(__file__).parents[1] / "docs" / "examples" / "tiny_darts.py"
    given = ["--plugin", example, "--space", "darts_tiny", "--method", "hnas", "--proxy", "params"]
    given += ["--option", "metric=snip", "--option", "networks=2", "--budget", 1, "--batch-size", 2]
    found = epochzero("search", *given, "--winner-scores", "none", "--json").json
    assert found["evaluated"] == 1 and found["best"]["params"] < 30_000
    assert spaces["darts"].parse(found["best"]["arch"])


def test_the_card_of_an_option_without_a_description(tmp_path: Path) -> None:
    (tmp_path / "bare_option.py").write_text(
        dedent(
            '''
            """Only a title."""
            from epochzero.engine import Pass, need, proxy

            @proxy(needs=[need(Pass(), "params")], higher_is_better=True)
            def bare_option(trace, *, power=1.0):
                return trace.params**power
            '''
        ).lstrip()
    )
    ran = epochzero("list", "proxies", "--plugin", tmp_path / "bare_option.py", "--card", "bare_option")
    assert ran.code == 0 and "power = 1.0" in ran.out
