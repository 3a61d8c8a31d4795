"""Every proxy has a complete card, and what the card says is so."""

from __future__ import annotations

import csv
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
import torch

from epochzero.engine import PlanNetwork, Proxy, Trace, need, parse, score_network
from epochzero.errors import DataError
from epochzero.evaluate.cards import card
from epochzero.evaluate.cards.explanation import explain
from epochzero.evaluate.cards.figures import costs, measured, published, read_measured
from epochzero.evaluate.evidence import tables
from epochzero.objectives.objective import parse_objective
from epochzero.registry import experiments, proxies, spaces
from tests.command import epochzero, refusal
from tests.proxies.nets import random_batch

ROOT = Path(__file__).parents[2]
CELL = "|nor_conv_1x1~0|+|skip_connect~0|none~1|+|avg_pool_3x3~0|skip_connect~1|nor_conv_1x1~2|"
SAMPLES = 8
FEW = {
    "lswag": "lswag(samples=8)",
    "near": "near(samples=8)",
    "swap": "swap(repeats=2,samples=8)",
    "swap_reg": "swap_reg(repeats=2,samples=8)",
}
QUICK = [FEW.get(name, name) for name in proxies]

# Completeness


@pytest.mark.parametrize("name", list(proxies))
def test_every_card_is_complete(name: str) -> None:
    found = card(proxies[name])
    assert found.summary.endswith("."), "the first line says what it is"
    assert "=" in found.formula, "an indented formula"
    assert re.fullmatch(r"\w+ \d{4}", found.paper), f"the last paragraph cites a paper: {found.citation!r}"
    assert found.beware, "a paragraph that starts with 'Beware:' says when it misleads"
    unexplained = [option.name for option in found.options if not option.meaning]
    assert not unexplained, f"the docstring of {name}'s file explains {unexplained} under 'Options:'"
    assert found.needs.data and found.needs.layers and found.needs.weights
    assert found.needs.forward_passes.isdigit(), "a proxy that reads the network says what it `runs`"


@pytest.mark.parametrize("name", list(proxies))
def test_files_explain_no_option_and_warn_of_no_proxy_that_is_not_there(name: str) -> None:
    doc = proxies[name].explanation
    neighbours = [proxy for proxy in proxies.values() if proxy.explanation == doc]
    options = {option for proxy in neighbours for option in proxy.defaults}
    assert set(explain(doc, name).options) == options
    for named in re.findall(r"^Beware \(([^)]*)\):", doc, re.MULTILINE):
        assert set(named.split(", ")) <= {proxy.name for proxy in neighbours}


# The facts, counted by running


class Counting(PlanNetwork):
    """A network that counts how often it is run."""

    runs = 0

    def forward(self, *arguments: Any, **named: Any) -> Any:
        self.runs += 1
        return super().forward(*arguments, **named)

    def jet(self, *arguments: Any, **named: Any) -> Any:
        self.runs += 1
        return super().jet(*arguments, **named)


@pytest.mark.parametrize("name", [*QUICK, "zico(batches=3)", "dextr(repeats=2)", "zen(repeats=2)", "ntk_cond(of=sum)"])
def test_passes_are_as_counted(name: str) -> None:
    proxy = parse(name)
    space = spaces["nb201"]
    network = Counting(space.plan(space.parse(CELL), 3, (3, 8, 8)))
    backward = 0
    grad = torch.autograd.grad

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal backward
        backward += 1
        return grad(*arguments, **named)

    with patch("torch.autograd.grad", counted):
        score_network(network, [proxy], random_batch((3, 8, 8), SAMPLES, 4), 0)
    needs = card(proxy).needs
    sizes = {"": 1, "B": SAMPLES, "L": 17}  # stem, 15 cells and 2 reductions: 17 pairs of neighbours
    terms = [re.fullmatch(r"(\d*)([A-Z]*)", term) for term in needs.backward_passes.split(" + ")]
    assert network.runs == int(needs.forward_passes)
    assert backward == sum(int(term[1] or 1) * sizes[term[2]] for term in terms if term)
    assert needs.backward == (backward > 0)


@pytest.mark.parametrize("name", QUICK)
def test_data_is_needed_as_said(name: str) -> None:
    """Other samples change the score exactly where the card says that data is needed."""
    proxy = parse(name)
    space = spaces["nb201"]
    network = PlanNetwork(space.plan(space.parse(CELL), 3, (3, 8, 8)))
    batches = [random_batch((3, 8, 8), SAMPLES, 4, seed) for seed in (0, 1)]
    one, other = (score_network(network, [proxy], batch, 0).scores[name] for batch in batches)
    if not re.search("batch|sample", card(proxy).needs.data):
        assert str(one) == str(other)
    elif not name.startswith(("linear_regions", "swap", "wpca")):  # whole numbers, or no transformer
        assert one.ok and other.ok and one.value != other.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("params", ("none", "0", "0", "any")),
        ("l2_norm", ("none", "0", "0", "conv, linear")),
        ("synflow", ("ones", "1", "1", "conv, linear")),
        ("naswot", ("1 batch", "1", "0", "ReLU")),
        ("grasp", ("1 batch", "1", "2", "conv, linear")),
        ("sigeo", ("4 batches", "4", "4", "conv, linear; all trainable")),
        ("dextr", ("1 sample, circle", "2", "0", "every layer")),
        ("swap(repeats=3,samples=5)", ("5 samples", "3", "0", "ReLU")),
        ("ntk_trace(of=outputs)", ("1 batch", "1", "BK", "all trainable")),
        ("hnas(metric=grad)", ("1 batch", "1", "1 + B", "conv, linear; all trainable")),
        ("tf_tas", ("ones", "1", "1", "attention, linear")),
        ("knas(variant=reference)", ("1 batch", "own", "own", "own")),
    ],
)
def test_demands_by_hand(text: str, expected: tuple[str, ...]) -> None:
    needs = card(parse(text)).needs
    assert (needs.data, needs.forward_passes, needs.backward_passes, needs.layers) == expected


def test_second_derivatives_and_samples_by_themselves() -> None:
    found = {name: card(proxies[name]).needs for name in proxies}
    twice = {name for name, needs in found.items() if needs.second_derivatives}
    assert twice == {"grasp", "curvature", "dextr", "dextr_opt"}
    apart = {name for name, needs in found.items() if needs.per_sample}
    assert apart == {"hnas", "nasi_trace_sum", "ntk_cond", "ntk_trace"}
    assert card(parse("dextr(variant=reference)")).needs.second_derivatives is None, "its passes are its own"


# The files of figures


def test_the_formula_of_this_proxy_comes_first() -> None:
    assert card(proxies["fmi"]).formula.startswith("fmi ")
    assert card(proxies["ntk_cond"]).formula.startswith("ntk_cond ")
    assert card(proxies["dextr"]).formula.splitlines()[0].startswith("dextr ")
    for name in ("fmi", "dextr_opt"):
        assert sorted(card(proxies[name]).formula.splitlines()) == sorted(card(proxies["dextr"]).formula.splitlines())


def test_warnings_are_those_of_this_proxy() -> None:
    for name in ("dextr", "fmi", "meco"):
        assert "NATS-Bench-SSS" in " ".join(card(proxies[name]).beware)
    assert "NATS-Bench-SSS" not in " ".join(card(proxies["meco_opt"]).beware)
    assert "preferred size" in " ".join(card(proxies["swap_reg"]).beware)
    assert "preferred size" not in " ".join(card(proxies["swap"]).beware)


def test_a_docstring_taken_apart() -> None:
    doc = """Made up: a test.

    b     = c
    score = a + b

Prose of
two lines.

    other = 1

Options:
    first      what it means,
               on two lines
    second     x = y: also this

Beware: of all.

Beware (other, more): of some.

One, Two. A title. Venue 1999, reprinted 2001."""
    found = explain(doc, "other")
    assert found.formula == "other = 1\nb     = c\nscore = a + b\n"
    assert found.prose == ("Prose of two lines.",)
    assert found.options == {"first": "what it means, on two lines", "second": "x = y: also this"}
    assert found.beware == ("of all.", "of some.")
    assert (found.citation, found.paper) == ("One, Two. A title. Venue 1999, reprinted 2001.", "One 1999")
    assert explain(doc, "score").beware == ("of all.",)


@pytest.mark.parametrize(
    "doc", ["", "One line.", "One line.\n\n    f = 1", "A.\n\nOptions:\n", "A.\n\nBeware: of this."]
)
def test_a_poor_docstring_makes_a_poor_card(doc: str) -> None:
    """A plug-in may say little; its card is empty where it does, and nothing breaks."""

    def compute(trace: Trace) -> float:
        return 0.0

    bare = Proxy("bare", compute, [need()], higher_is_better=True, defaults={"a": 1})
    with patch.object(Proxy, "explanation", doc):
        found = card(bare)
    assert (found.citation, found.paper) == ("", "")
    assert [option.meaning for option in found.options] == [""]


# The figures


def test_published_figures_are_those_of_the_papers() -> None:
    """Some of each table, copied from the papers by hand; plain's with the sign turned."""
    found = {(row.proxy, row.space, row.target, row.statistic, row.source): row.value for row in published()}
    assert len(found) == len(published()), "no figure stands twice"
    for key, value in {
        ("sigeo", "nb201", "cifar100", "spearman", "SiGeo Table 2"): 0.82,
        ("l2_norm", "nb101", "cifar10", "kendall", "SiGeo Table 2"): 0.35,
        ("plain", "nb201", "imagenet16", "kendall", "SiGeo Table 2"): 0.15,
        ("sigeo(weights=warm_vision)", "nb301", "cifar10", "kendall", "SiGeo Table 3, 40 % warm-up"): 0.41,
        ("dextr", "nb201", "cifar10", "spearman", "Dextr Table 1"): 0.90,
        ("near", "nats_sss", "imagenet16", "spearman", "NEAR Table 2"): 0.92,
        ("vkdnw", "nb201", "imagenet16", "spearman", "VKDNW Table I"): 0.814,
        ("swap_reg", "transnas", "scene", "spearman", "Dextr Table 1"): 0.67,
        ("fmi", "nb201", "imagenet16", "spearman", "Dextr Table 4"): 0.85,
        ("meco", "nats_sss", "cifar100", "spearman", "Dextr Table 6"): -0.87,
        ("dextr_opt", "nats_sss", "cifar100", "spearman", "Dextr Table 7"): 0.66,
        ("hnas(form=non_realizable,metric=grasp)", "nb101", "cifar10", "spearman", "thesis Table 7.1"): 0.46,
        ("hnas(form=realizable)", "nb201", "imagenet16", "kendall", "thesis Table 7.5"): 0.354,
        ("hnas(form=realizable,metric=naswot)", "nb201", "imagenet16", "spearman", "thesis Table 7.12"): 0.16,
        ("synflow", "nb1shot1_s3", "cifar10", "kendall", "NASI Table 3"): -0.47,
    }.items():
        assert found[key] == value


def test_cards_and_recipe_quote_a_table_alike() -> None:
    """Signs as well: `plain` is turned in both."""
    where = {"NB101": ("nb101", "cifar10"), "NB301": ("nb301", "cifar10"), "NB201-C10": ("nb201", "cifar10")}
    where |= {"NB201-C100": ("nb201", "cifar100"), "NB201-IN16": ("nb201", "imagenet16")}
    quoted = {(one.x, *where[one.y], one.statistic): one.value for one in experiments["sigeo-table2"].quoted}
    rows = [row for row in published() if row.source == "SiGeo Table 2"]
    assert {(row.proxy, row.space, row.target, row.statistic): row.value for row in rows} == quoted


def test_figures_are_of_known_proxies_and_possible() -> None:
    for text in {row.proxy for rows in (published(), measured(), costs()) for row in rows}:
        assert parse_objective(text).text == text, "written as the store writes it"
    assert all(-1 <= row.value <= 1 and row.statistic in ("spearman", "kendall") for row in published())
    for row in measured():
        assert -1 <= row.low <= row.spearman <= row.high <= 1
        assert -1 <= row.kendall_low <= row.kendall <= row.kendall_high <= 1
        assert row.n > 2 and row.unscored >= 0 and row.machine
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", row.date)
    keys = [(row.proxy, row.space, row.data, row.target) for row in measured()]
    assert len(set(keys)) == len(keys)


# benchmarks/correlations.py


@pytest.fixture(scope="module")
def correlations() -> ModuleType:
    spec = importlib.util.spec_from_file_location("correlations", ROOT / "benchmarks" / "correlations.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ARCHS = [
    f"|{op}~0|+|none~0|none~1|+|{last}~0|none~1|none~2|"
    for op in ("none", "nor_conv_1x1", "nor_conv_3x3")
    for last in ("skip_connect", "avg_pool_3x3")
]


def write(path: Path, rows: list[tuple[object, ...]], *columns: str) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)
    return path


def test_scores_become_figures(correlations: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """snip rises with accuracy, plain falls, which is its right way; zico has no score for one network."""
    columns = ("arch", "proxy", "value", "status", "why")
    rows: list[tuple[object, ...]] = [(arch, "snip", i, "ok", "") for i, arch in enumerate(ARCHS)]
    rows += [(arch, "plain", -i, "ok", "") for i, arch in enumerate(ARCHS)]
    rows += [(arch, "zico", [3, 1, 2, 4, 5, 0][i], "ok", "") for i, arch in enumerate(ARCHS[:5])]
    rows += [(ARCHS[5], "zico", "", "degenerate", "made up"), (ARCHS[0], "snip", 99, "ok", "")]
    scores = write(tmp_path / "scores.csv", rows, *columns)
    mended = write(tmp_path / "mended.csv", [(ARCHS[0], "snip", -1, "ok", "")], *columns)
    table = write(tmp_path / "table.csv", [(arch, 50 + i) for i, arch in enumerate(ARCHS)], "arch_str", "cifar10_test")
    out = tmp_path / "measured.csv"
    kept = correlations.Measured("fmi", "nb201", "pink", "cifar10_test", 9, 0, *[0.5] * 6, 0, "elsewhere", "2026-01-01")
    correlations.replace_rows(out, [kept])
    arguments = [
        scores,
        mended,
        "--table",
        table,
        "--targets",
        "cifar10_test",
        "--data",
        "cifar10",
        "--machine",
        "here",
    ]
    arguments += [
        "--date",
        "2026-02-03",
        "--also",
        "rank(snip,plain)",
        "--pairs",
        "snip:plain,snip:zico",
        "--measured",
        out,
    ]
    with patch.object(sys, "argv", ["correlations.py", *map(str, arguments)]):
        correlations.main()
    found = {row.proxy: row for row in read_measured(out)}
    assert list(found) == ["fmi", "plain", "rank(snip,plain)", "snip", "zico"]
    assert found["fmi"] == kept
    assert [found[name].spearman for name in ("snip", "plain", "rank(snip,plain)")] == [1, 1, 1], (
        "the last score counts"
    )
    assert (found["zico"].n, found["zico"].unscored, found["zico"].spearman) == (5, 1, 0.7)  # 1 - 6*(4+1+1)/(5*24)
    printed = capsys.readouterr().out
    assert "| snip | 6 | 0 | 1.000 [.632, 1.000] |" in printed, "Bonett and Wright, half a step below 1"
    assert ".58 (SiGeo Table 2)" in printed
    assert "- `zico`: 1 without a score: made up." in printed
    assert "| snip - plain | 6 | +0.000 [-0.368, +0.368] |" in printed, "six networks in one order tell little"
    assert "| snip - zico | 5 | +0.300 [" in printed, "on the networks that both have scored"


def test_other_files_are_refused(correlations: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no column reasons"):
        correlations.read_scores([write(tmp_path / "x.csv", [], "arch", "proxy", "value")])
    with pytest.raises(DataError, match="no scores of zico"):
        correlations.merits(parse_objective("zico"), {"snip": {}})


# The command


def test_list_shows_every_name_whole() -> None:
    ran = epochzero("list", "proxies")
    first = [line.split(" ")[0] for line in ran.out.splitlines()]
    assert set(proxies) <= set(first)
    assert "--card NAME" in ran.out


def test_list_knows_the_experiments() -> None:
    rows = epochzero("list", "experiments", "--json").json["experiments"]
    assert [row["name"] for row in rows] == list(experiments)
    assert all(row["source"] and row["about"] and row["status"] and row["origin"] for row in rows)
    shown = epochzero("list", "experiments").out
    assert all(name in shown for name in experiments)
    assert shown == epochzero("reproduce", "--list").out


def test_card_is_shown() -> None:
    shown = " ".join(epochzero("list", "proxies", "--card", "dextr").out.split())
    for part in ("dextr higher is better", "dextr = fmi * curvature", "points = 4 number of points", "labels no"):
        assert part in shown
    for part in ("2 forward, 0 backward", "ranked in the wrong order: -.63", "Dextr Table 1 .90 .91 .87", "ours on"):
        assert part in shown


def test_the_card_of_the_default_has_its_row_of_the_leaderboard() -> None:
    shown = epochzero("list", "proxies", "--card", "auto").out
    known = {table.target: table.known[parse_objective("auto").text] for table in tables()}
    for target, one in known.items():
        assert re.search(rf"{target}\s+\d+\s+{one.spearman:.2f} \[{one.low:.2f}, {one.high:.2f}\]", shown)


def test_cards_as_json() -> None:
    cards = epochzero("list", "proxies", "--card", "all", "--json").json["cards"]
    assert [found["name"] for found in cards] == list(proxies)
    (zico,) = epochzero("list", "proxies", "--card", "zico(batches=4)", "--json").json["cards"]
    assert zico["name"] == "zico(batches=4)"
    assert zico["needs"]["forward_passes"] == "4"
    assert zico["options"][0]["value"] == 4
    assert {row["statistic"] for row in zico["published"]} == {"spearman", "kendall"}


def test_all_cards_can_be_shown() -> None:
    ran = epochzero("list", "proxies", "--card", "all")
    assert ran.code == 0
    assert all(f"{name}  " in ran.out for name in proxies)


def test_cards_that_do_not_exist() -> None:
    assert "No proxy is called 'dexter'. Did you mean 'dextr'?" in refusal("list", "proxies", "--card", "dexter")
    assert "--card is for proxies" in refusal("list", "spaces", "--card", "nb201")
    assert "No proxy is named" in refusal("list", "proxies", "--card", " ")
