"""The scripts that turn stored scores into the tables of docs/results.md, and the scores that are kept in docs/data."""

from __future__ import annotations

import csv
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau, spearmanr

from epochzero.engine import parse_list
from epochzero.engine.gpu import fused
from epochzero.engine.proxy import parse
from epochzero.engine.space_networks import batch_for
from epochzero.errors import DataError, UserError
from epochzero.evaluate.cards.figures import SURVIVES, precisions
from epochzero.evaluate.speed.report import Report
from epochzero.objectives.objective import parse_objective
from epochzero.pictures import new_panels
from epochzero.registry import proxies, spaces
from epochzero.spaces import nb201
from epochzero.store import Evaluated, ScoreRow, Store, add, export
from epochzero.study.task import Task
from epochzero.tables import AccuracyTable
from epochzero.types import Origin, Score, Setting
from epochzero_papers.harness.scoring import recall

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs" / "data"
NB201 = spaces["nb201"]
ARCHS = [
    f"|{op}~0|+|none~0|none~1|+|{last}~0|none~1|none~2|"
    for op in ("none", "nor_conv_1x1", "nor_conv_3x3")
    for last in ("skip_connect", "avg_pool_3x3")
]
TRUTH = [50.0, 51.0, 52.0, 53.0, 54.0, 55.0]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmarks.{name}", ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def test_what_searches_cost_with_a_store_in_memory_and_on_disk(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["searches.py", "--candidates", "200", "--only", "random,top_k", "--file-store"]
    with patch.object(sys, "argv", arguments):
        script("searches").main()
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[:3] for row in rows] == [[name, at, "200"] for name in ("random", "top_k") for at in ("memory", "file")]
    assert all(float(row[5]) > 0 and float(row[row.index("mean") + 1]) > 0 for row in rows)
    assert ["pool" in row for row in rows] == [False, False, True, True]


@pytest.fixture(scope="module")
def correlations() -> ModuleType:
    return script("correlations")


@pytest.fixture(scope="module")
def warm_up() -> ModuleType:
    return script("warm_up")


def write(path: Path, columns: dict[str, list[object]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def swept(path: Path, **proxies: list[float]) -> Path:
    """A file of a sweep."""
    columns: dict[str, list[object]] = {"arch": list(ARCHS)}
    columns |= {name: list(values) for name, values in proxies.items()}
    return write(path, columns | {"reasons": ["{}"] * len(ARCHS)})


def accuracies(path: Path) -> Path:
    return write(path, {"arch_str": list(ARCHS), "cifar10_test": list(TRUTH)})


# correlations.py


@pytest.fixture
def run(correlations: ModuleType, tmp_path: Path) -> Callable[..., None]:
    table = accuracies(tmp_path / "table.csv")

    def called(*arguments: object) -> None:
        options = ["--table", table, "--targets", "cifar10_test", "--data", "cifar10", "--machine", "here"]
        with patch.object(sys, "argv", ["correlations.py", *map(str, [*arguments, *options])]):
            correlations.main()

    return called


def test_repeats_are_averaged_and_counted(
    run: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = [2.0, 1.0, 3.0, 5.0, 4.0, 6.0]
    first = swept(tmp_path / "0.csv", snip=[0, 1, 2, 3, 4, 5], zico=[1, 0, 2, 3, 4, 5], params=sizes)
    other = swept(tmp_path / "1.csv", snip=[1, 0, 2, 3, 4, 5], params=sizes)
    run(first, "--repeat", other, "--pairs", "snip:params")
    printed = capsys.readouterr().out
    snip = next(line for line in printed.splitlines() if line.startswith("| snip |")).split(" | ")
    second = 1 - 6 * 2 / (6 * 35)  # one pair of neighbours is the wrong way round
    assert snip[1:4] == ["2", "6", "0"]
    assert float(snip[4].split()[0]) == pytest.approx((1 + second) / 2, abs=5e-4)
    assert snip[4].endswith(f"±{(1 - second) / 2**0.5:.3f}".replace("0.", "."))
    x, z, y = [1, 0, 2, 3, 4, 5], sizes, TRUTH
    xy, xz, yz = (spearmanr(*pair).statistic for pair in ((x, y), (x, z), (y, z)))
    zico = next(line for line in printed.splitlines() if line.startswith("| zico |")).split(" | ")
    assert zico[1] == "1", "scored by one file alone"
    assert float(zico[6].split()[0]) == pytest.approx((xy - xz * yz) / ((1 - xz**2) * (1 - yz**2)) ** 0.5, abs=5e-4)
    gap = (1 + second) / 2 - spearmanr(z, y).statistic
    assert f"| snip - params | 6 | {gap:+.3f} [" in printed
    assert "- `snip` (SiGeo Table 2): cifar10_test spearman .971" in printed, "the paper's .58 is outside"


def test_only_networks_of_another_table(
    run: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = swept(tmp_path / "0.csv", snip=[9, 1, 2, 3, 4, 5])
    others = write(tmp_path / "others.csv", {"arch_str": list(ARCHS[1:])})
    run(scores, "--among", others)
    assert "| snip | 5 | 0 | 1.000 [" in capsys.readouterr().out, "the first is left out"


def test_papers_stand_beside_a_proxy_with_other_repeats(
    run: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = {"swap_reg(repeats=8)": [5.0, 1, 2, 3, 4, 0], "swap_reg(mu=5000.0,repeats=8)": [0.0, 1, 2, 3, 4, 5]}
    run(swept(tmp_path / "0.csv", **columns))
    lines = {line.split(" | ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert lines["| swap_reg(repeats=8)"].endswith("| .88 (Dextr Table 1) |")
    assert lines["| swap_reg(mu=5000.0,repeats=8)"].endswith("|  |"), "another mu is another score"


def test_measured_takes_no_repeats(run: Callable[..., None], tmp_path: Path) -> None:
    scores = swept(tmp_path / "0.csv", snip=[0, 1, 2, 3, 4, 5])
    with pytest.raises(UserError, match="leave out --measured or --repeat"):
        run(scores, "--repeat", scores, "--measured", tmp_path / "measured.csv")
    assert not (tmp_path / "measured.csv").exists()


def test_a_combination_needs_its_members_in_one_repeat(correlations: ModuleType) -> None:
    apart = [{"snip": dict.fromkeys(ARCHS, Score(1.0))}, {"zico": dict.fromkeys(ARCHS, Score(1.0))}]
    with pytest.raises(DataError, match="There are no scores of zico"):
        correlations.repeated(parse_objective("rank(snip,zico)"), apart)


def test_rows_are_parsed_only_until_all_are_found(correlations: ModuleType) -> None:
    spoken = [f" {arch} " for arch in ARCHS]  # not as the space writes it, so that it has to be parsed
    columns = {"cifar10_test": [str(value) for value in (*TRUTH, 1.0)]}
    table = AccuracyTable([*spoken, "no architecture"], columns, "t.csv")
    assert correlations.rows_of(table, NB201, set(ARCHS)) == {arch: row for row, arch in enumerate(ARCHS)}
    truths = correlations.Truths(table, NB201, ARCHS[:2])
    assert truths.of(reversed(ARCHS[:2]), "cifar10_test") == [51.0, 50.0]
    with pytest.raises(DataError, match=r"Row 7 of t\.csv does not fit"):
        correlations.rows_of(table, NB201, {*ARCHS, "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|"})
    known = AccuracyTable(ARCHS, {}, "t.csv")
    with pytest.raises(DataError, match=r"t\.csv has no row for architecture '\|none"):
        correlations.rows_of(known, NB201, {"|none~0|+|none~0|none~1|+|none~0|none~1|none~2|"})


# warm_up.py

STEADY = {0: [1.0, 2.0, 3.0, 5.0, 4.0], 78: [2.0, 1.0, 3.0, 4.0, 5.0]}
REST = {0: [0.5, -0.5, 0.25, 0.0, 1.0], 78: [50.0, 100.0, 0.0, -50.0, 150.0]}


def warmed(path: Path) -> Path:
    """A store in which the last network has no score."""
    with Store.open(path) as store:
        run = store.begin_run("warm-up", {}, {})
        for steps, steady in STEADY.items():
            sigeo = "sigeo(weights=warm_vision)" if steps else "sigeo"
            rows = []
            for place, (one, more) in enumerate(zip(steady, REST[steps], strict=True)):
                found = {"zico(batches=4)": (Score(one), 0.1), sigeo: (Score(one + more), 0.1)}
                rows.append(Evaluated(place, ARCHS[place], found))
            nothing = (Score.degenerate("cut off"), 0.1)
            rows.append(Evaluated(5, ARCHS[5], {"zico(batches=4)": nothing, sigeo: nothing}))
            run.record(Setting("nb201", f"cifar10-1+{steps}", f"default:0, {steps} steps"), rows)
    return path


def test_warm_up_tables(warm_up: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = warmed(tmp_path / "warm.db")
    columns: dict[str, list[object]] = {"arch_str": list(ARCHS)}
    columns |= {target: list(TRUTH) for target in warm_up.TARGETS}
    table = write(tmp_path / "table.csv", columns)
    warm_up.main([str(store), "--table", str(table)])
    printed = capsys.readouterr().out
    assert printed.startswith("5 networks.\n- 1 without a score: cut off.\n")
    for name, steps, x in [
        ("zico", 0, STEADY[0]),
        ("zico", 78, STEADY[78]),
        ("sigeo", 78, np.add(STEADY[78], REST[78])),
        ("rest", 0, REST[0]),
        ("zico + rest / 50", 78, np.add(STEADY[78], np.divide(REST[78], 50))),
    ]:
        cells = next(line for line in printed.splitlines() if line.startswith(f"| {name} | {steps} |")).split(" | ")
        rho, tau = spearmanr(x, TRUTH[:5]).statistic, kendalltau(x, TRUTH[:5]).statistic
        assert cells[2] == f"{np.std(x):.2f}"
        assert float(cells[3].split()[0]) == pytest.approx(rho, abs=5e-4)
        assert float(cells[6].split()[0]) == pytest.approx(tau, abs=5e-4)
    assert "| .83/.85/.85, .64/.66/.67 |" in printed, "SiGeo at 10 %, as its Table 3 has it"
    assert "| sigeo, 78 - sigeo, 0 |" in printed
    with Store.open(store) as opened:
        export(opened, tmp_path / "warm.csv.gz")
    warm_up.main([str(tmp_path / "warm.csv.gz"), "--table", str(table)])
    assert capsys.readouterr().out == printed, "an export says the same as its store"


def test_terms_that_are_stored_apart_are_printed(
    warm_up: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    zico, loss = [1.0, 2.0, 3.0, 5.0, 4.0], [-2.0, -1.0, -3.0, -1.5, -0.5]
    with Store.open(tmp_path / "apart.db") as store:
        rows = [
            Evaluated(
                place,
                ARCHS[place],
                {"zico(batches=4)": (Score(one), 0.1), "sigeo(weights=warm_vision)": (Score(one + other), 0.1)}
                | {name: (Score(other), 0.1) for name in warm_up.PARTS},
            )
            for place, (one, other) in enumerate(zip(zico, loss, strict=True))
        ]
        run = store.begin_run("warm-up", {}, {})
        run.record(Setting("nb201", "cifar10-1+78", "default:0, 78 steps"), rows)
    columns: dict[str, list[object]] = {"arch_str": list(ARCHS)}
    columns |= {target: list(TRUTH) for target in warm_up.TARGETS}
    warm_up.main([str(tmp_path / "apart.db"), "--table", str(write(tmp_path / "table.csv", columns))])
    printed = capsys.readouterr().out
    ranks = np.log(np.argsort(np.argsort(zico)) + 1) + np.log(np.argsort(np.argsort(loss)) + 1)
    (line,) = (line for line in printed.splitlines() if line.startswith("| rank(zico,-loss) | 78 |"))
    assert float(line.split(" | ")[3].split()[0]) == pytest.approx(spearmanr(ranks, TRUTH[:5]).statistic, abs=5e-4)
    assert "| log FR | 78 |" in printed and "| rank(zico,-loss), 78 - zico, 78 |" in printed


def test_other_scores_are_refused(warm_up: ModuleType, tmp_path: Path) -> None:
    other = write(tmp_path / "other.csv", {"arch": [], "proxy": []})
    with pytest.raises(DataError, match="is not an export of a store"):
        list(warm_up.read_rows(other))
    row = ScoreRow("nb201", ARCHS[0], "sigeo", "cifar10-1", "default:0", 1.0, "ok", "", 0.1)
    with pytest.raises(DataError, match="does not say after how many steps"):
        warm_up.gathered([row])
    with pytest.raises(DataError, match="have no scores of"):
        warm_up.gathered([row._replace(proxy="snip")])


# guarantees.py


@pytest.fixture
def guarantees(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return script("guarantees")


def test_bounds_are_ranked_against_accuracies(
    guarantees: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(4)
    archs = [NB201.text(arch) for arch in NB201][:40]
    truth, kappa, m = rng.uniform(50, 90, 40), rng.lognormal(size=40), rng.lognormal(size=(4, 40))
    names = ["grad_norm", "snip", "grasp", "ntk_trace"]
    columns: dict[str, list[object]] = {"arch": list(archs), "ntk_cond": list(kappa), "reasons": ["{}"] * 40}
    scores = write(tmp_path / "scores.csv", columns | {name: list(row) for name, row in zip(names, m, strict=True)})
    table = write(tmp_path / "table.csv", {"arch_str": list(archs), "cifar10_test": list(truth)})
    guarantees.main([str(scores), "--table", str(table), "--resamples", "20"])
    lines = {line.split(" | ")[0][2:]: line.split(" | ")[1:] for line in capsys.readouterr().out.splitlines()}
    for row, bound in (("1/M", 1 / m[1]), ("kappa/M", kappa / m[1])):
        n, _, snip, *_ = lines[row]
        assert n == "40" and float(snip.split()[0]) == pytest.approx(spearmanr(-bound, truth).statistic, abs=5e-4)
    assert lines["1/M"][2].endswith("(.639)"), "as the thesis prints it"
    assert lines["non-realizable, held out"][0] == lines["kappa/M, held out"][0] == "20"
    with pytest.raises(DataError, match="There are no scores of grad_norm, snip"):
        guarantees.scored({"ntk_cond": {}})


# tables.py


def test_what_a_large_table_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = script("tables")
    monkeypatch.setattr(tables, "ROWS", 50)
    rows = tables.table()
    path = tmp_path / "small.ezb"
    tables.TabularBenchmark.of(rows.mean_over_seeds(), tables.Texts()).write(path)
    for reader in tables.READERS.values():
        cost = tables.measured(reader, path)
        assert 0 <= cost.opening < 1 and 0 <= cost.reading < 1
    assert not tables.over_the_bar(cost._replace(opening=0.9, peak=199.0, reading=9.0)), "reading has no bar"
    assert tables.over_the_bar(cost._replace(opening=1.1, peak=0.0))
    assert tables.over_the_bar(cost._replace(opening=0.1, peak=201.0))


# docs/data


def test_stored_seeds_score_the_same_networks(correlations: ModuleType) -> None:
    first, *others = (
        correlations.read_scores([DATA / f"nb201_1000_cifar10{seed}.csv.gz"]) for seed in ("", "_seed1", "_seed2")
    )
    for other in others:
        assert len(other) == 34
        for proxy, of_each in other.items():
            assert of_each.keys() == first["params"].keys(), proxy
        assert other["params"] == first["params"], "nothing random enters"
        unlike = sum(other["snip"][arch] != score for arch, score in first["snip"].items() if score.ok)
        assert unlike == 985, "other weights and another batch"


@pytest.mark.parametrize(
    ("name", "images", "seed"),
    [
        ("nb201_1000_cifar10", "cifar10", 0),
        ("nb201_1000_cifar10_seed1", "cifar10", 1),
        ("nb201_1000_cifar10_seed2", "cifar10", 2),
        ("nb201_1000_cifar100", "cifar100", 0),
    ],
)
def test_stored_scores_are_of_the_batch_that_they_name(name: str, images: str, seed: int) -> None:
    file = ROOT.parent / "shared" / "data" / f"{images}.npz"
    if not file.exists():
        pytest.skip(f"{file} is not there")
    space, proxies = spaces["nb201"], [parse(text) for text in ("fmi", "synflow", "naswot", "grad_norm")]
    task = Task(space, proxies, batch_for(space, file, seed=seed), Origin(seed=seed))
    with Store.open(":memory:") as store:
        assert add(store, DATA / f"{name}.csv.gz") >= 34_000
        arch = space.parse(store.archs(task.setting)[700])
        (known,), ((now, _),) = recall(task, [arch], store), task.score([arch])
    for proxy, score in known.items():
        assert now[proxy].value == pytest.approx(score.value, rel=1e-2 if proxy == "grad_norm" else 1e-5), proxy


def test_stored_warm_up_is_whole(warm_up: ModuleType) -> None:
    archs, scores, lacking = warm_up.gathered(warm_up.read_rows(DATA / "nb201_warm_up.csv.gz"))
    assert len(archs) == 149 and sum(lacking.values()) == 1
    assert sorted(scores) == [(name, steps) for name in ("sigeo", "zico") for steps in (0, 78, 312)]


def test_tf32_leaves_what_it_does_not_touch(correlations: ModuleType) -> None:
    single, rounded = (
        correlations.read_scores([DATA / f"{name}.csv.gz"]) for name in ("nb101_1000_cifar10", "nb101_224_cifar10_tf32")
    )
    assert len(rounded["params"]) == 224 and len(rounded["ntk_cond"]) == 128
    for arch, score in rounded["l2_norm"].items():
        assert score.value == pytest.approx(single["l2_norm"][arch].value, rel=1e-6), "the same weights"


def test_what_survives_tf32_is_declared_by_evidence_alone(correlations: ModuleType) -> None:
    """A proxy declares the spaces on which the lower end of its agreement is high enough, and no other."""
    single, rounded = (
        correlations.read_scores([DATA / f"{name}.csv.gz"]) for name in ("nb101_1000_cifar10", "nb101_224_cifar10_tf32")
    )
    for row in precisions():
        assert row.space == "nb101"
        both = [(single[row.proxy][arch], score) for arch, score in rounded[row.proxy].items()]
        values = [(one.value, other.value) for one, other in both if one.ok and other.ok]
        assert len(values) == row.n and row.low <= row.spearman <= row.high
        ours, theirs = zip(*values, strict=True)
        assert spearmanr(list(ours), list(theirs)).statistic == pytest.approx(row.spearman, abs=1e-4)
    declared = {(name, space) for name, proxy in proxies.items() for space in getattr(proxy, "tf32", ())}
    assert declared == {(row.proxy, row.space) for row in precisions() if row.low >= SURVIVES}


def test_panels_fill_lines() -> None:
    pytest.importorskip("matplotlib", reason="plots need matplotlib")
    figure, axes = new_panels(5, 4, 2.0, 3.0)
    assert len(axes) == 5 and list(figure.get_size_inches()) == [8.0, 6.0]
    figure, axes = new_panels(2, 4, 2.0, 3.0)
    assert len(axes) == 2 and list(figure.get_size_inches()) == [4.0, 3.0]


@pytest.mark.usefixtures("shallow_nb201")
def test_what_a_population_costs_the_host() -> None:
    """Twice as many networks take little more than as many launches; stand-ins are gone afterwards."""
    launches = script("launches")
    with launches.as_on_a_gpu():
        few, many = (launches.measured(parse_list("snip,synflow,dextr"), size, 1) for size in (4, 8))
    assert all(number > 0 for row in (few, many) for number in row.values())
    assert few["launches"] < many["launches"] < 1.8 * few["launches"]
    assert not fused.available(torch.ones(1)) and nb201.WIDTHS == (16, 32, 64)


def speed_report(auto: float) -> Report:
    """Of a suite that measured one space in three ways."""
    ways = {"auto": auto, "alone": 50.0, "processes": 10.0}
    rows = [{"name": "dextr", "way": way, "ms": ms, "floor": {"ms": 2.0}} for way, ms in ways.items()]
    machine = {"device": "GPU", "cpus": 16, "torch": "2", "date": "2026-11-19T00:00:00"}
    settings = {"batch_size": 64, "device": "cuda", "together": 6}
    part = {"rows": rows, "equality": [], "machine": machine, "settings": settings}
    return {"spaces": {"darts": part, "nb101": part | {"rows": rows[:2]}}, "left_out": []}


def test_the_page_about_speed_says_what_was_measured(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    made = script("speed_page")
    one = made.page(speed_report(54.0) | {"kind": "suite"})
    assert "within 10 % of the best way in 2 of 2 rows" in one and "1 of 2 rows are as fast as was asked" in one
    assert "| darts (64) | dextr | 54 | 50 | 10 | 20 | 1.08 | 2 |  |" in one
    assert "| nb101 (64) | dextr | 54 | 50 |  | 12 | 1.08 | 2 |  |" in one
    assert "in 0 of 2 rows" in made.page(speed_report(56.0))
    assert "came first" not in one
    old = speed_report(54.0)
    del old["spaces"]["darts"]["settings"]["together"]
    assert "came first" in made.page(old)
    assert made.draw(old, tmp_path) == [file.name for file in sorted(tmp_path.iterdir())]
