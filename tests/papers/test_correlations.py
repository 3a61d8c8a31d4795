"""Tables of correlations: compared with scores one by one, missing data, the sampled networks, resuming."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy.stats import kendalltau, spearmanr

import epochzero as ez
from epochzero import data
from epochzero.errors import DataError, UserError
from epochzero.plan.execute import execute
from epochzero.registry import experiments, proxies, spaces
from epochzero.store import Store, export
from epochzero.study.task import Task
from epochzero.tables import AccuracyTable
from epochzero_papers.dextr import table5 as dextr_table5
from epochzero_papers.harness.base import Result, Settings
from epochzero_papers.harness.correlations import (
    NB101_C10,
    NB201_C10,
    NB201_C100,
    NB201_IN16,
    Correlations,
    Extent,
    Figures,
)
from epochzero_papers.harness.report import circumstances
from epochzero_papers.nasi.one_shot_spaces import TARGETS, OneShotCorrelations
from tests.command import epochzero
from tests.papers.small import small_images

NETWORKS = 5
SEEDS = (3, 4)
pytestmark = pytest.mark.usefixtures("shallow_nb201")


class Small(Correlations):
    """Three proxies that cost little, one of them lower-is-better."""

    name = "small"
    source = "nowhere"
    full = Extent(networks=NETWORKS, batch_size=4, repeats=len(SEEDS))
    quick = replace(full, spaces=("nb201",))
    targets = (NB101_C10, NB201_C10, NB201_C100, replace(NB201_IN16, init="kaiming"))
    spearman: ClassVar[Figures] = {
        "grad_norm": (0.1, 0.2, 0.3, 0.4),
        "plain": (0.5, 0.6, None, 0.8),
        "harmonic(params,flops)": (None, None, None, None),
    }
    kendall = spearman
    unmeasured = ("The rest is not measured.",)


def write_table(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of five connected NB201 networks, and images that stand for CIFAR-10 and -100."""
    folder = tmp_path_factory.mktemp("data")
    small_images(folder, "cifar10.npz")
    images = np.random.default_rng(8).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
    np.savez(folder / "cifar100.npz", x=images, y=np.arange(40) % 5)
    space, rng = spaces["nb201"], Random(2)
    archs = {f"|nor_conv_3x3~0|{text.split('|', 2)[2]}" for text in (space.text(space.sample(rng)) for _ in range(9))}
    rows = [[arch, rng.random(), rng.random(), rng.random()] for arch in sorted(archs)[:NETWORKS]]
    write_table(folder / "nb201.csv", ["arch_str", "cifar10_test", "cifar100_test", "imagenet16_test"], rows)
    return folder


@pytest.fixture(scope="module")
def result(folder: Path) -> Result:
    return Small().run(seed=SEEDS[0], folder=folder)


@cache
def slow_scores(path: Path, arch: str, seed: int, init: str) -> dict[str, float]:
    """One network by itself, higher being better."""
    batch = data.load(path, size=4, seed=seed)
    asked = ["grad_norm", "plain", "params", "flops"]
    value = {n: s.value for n, s in ez.score(arch, asked, space="nb201", data=batch, seed=seed, init=init).items()}
    both = 2 / (1 / value["params"] + 1 / value["flops"])
    return {"grad_norm": value["grad_norm"], "plain": -value["plain"], "harmonic(params,flops)": both}


def slow(folder: Path, images: str, column: str, proxy: str, init: str, statistic: Any) -> float:
    """The mean over seeds of the correlation, networks scored one by one."""
    with (folder / "nb201.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    truth = [float(row[column]) for row in rows]
    found = []
    for seed in SEEDS:
        merits = [slow_scores(folder / images, row["arch_str"], seed, init)[proxy] for row in rows]
        found.append(statistic(merits, truth).statistic)
    return float(np.mean(found))


def test_rows_are_what_slow_scores_give(result: Result, folder: Path) -> None:
    rows = {(row.sample, row.x, row.y, row.statistic): row for row in result.rows}
    assert set(result.samples) == {"nb201 on cifar10", "nb201 on cifar100", "nb201 on cifar10, kaiming"}
    for sample, label, images, column, init in (
        ("nb201 on cifar10", "NB201-C10", "cifar10.npz", "cifar10_test", "default"),
        ("nb201 on cifar100", "NB201-C100", "cifar100.npz", "cifar100_test", "default"),
        ("nb201 on cifar10, kaiming", "NB201-IN16", "cifar10.npz", "imagenet16_test", "kaiming"),
    ):
        for proxy in Small.spearman:
            for name, statistic in (("spearman", spearmanr), ("kendall", kendalltau)):
                row = rows[sample, proxy, label, name]
                assert row.found is not None and row.found.n == NETWORKS
                assert row.found.low <= row.found.value <= row.found.high
                expected = slow(folder, images, column, proxy, init, statistic)
                assert row.found.value == pytest.approx(expected, abs=1e-9), (sample, proxy, name)
    assert len(rows) == 3 * len(Small.spearman) * 2
    assert rows["nb201 on cifar10", "plain", "NB201-C10", "spearman"].paper == 0.6
    assert rows["nb201 on cifar100", "plain", "NB201-C100", "kendall"].paper is None
    assert rows["nb201 on cifar10, kaiming", "grad_norm", "NB201-IN16", "kendall"].paper == 0.4


def test_what_lacks_data_and_what_is_not_measured_is_said(result: Result, folder: Path) -> None:
    lacking, rest = result.left_out
    assert lacking.startswith("NB101 is left out: it needs nb101.ezb or nb101_15k.csv.gz or ")
    assert lacking.endswith(f"in '{folder}'.")
    assert rest == "The rest is not measured."
    small = Small().run(replace(Small.quick, networks=3, repeats=1), folder=folder)
    assert small.left_out == ["NB101: left out of this small form.", "The rest is not measured."]
    assert {len(sample.archs) for sample in small.samples.values()} == {3}


def test_samples_hold_scores_and_truth(result: Result, folder: Path) -> None:
    sample = result.samples["nb201 on cifar10"]
    table = AccuracyTable.read(folder / "nb201.csv")
    assert sorted(sample.archs) == sorted(table.archs)
    assert sample.values["NB201-C10"] == [table.lookup(arch, "cifar10_test") for arch in sample.archs]
    assert [name for name in sample.values if name.startswith("plain")] == ["plain", "plain, repeat 2"]
    batch = data.load(folder / "cifar10.npz", size=4, seed=SEEDS[1])
    score = ez.score(sample.archs[0], "plain", space="nb201", data=batch, seed=SEEDS[1])["plain"]
    assert sample.values["plain, repeat 2"][0] == pytest.approx(-score.value)
    assert len(sample.batches) == 2


def test_given_images_take_the_place_of_all(folder: Path) -> None:
    settings = Extent(networks=3, batch_size=4)
    noise = Small().run(settings, data="white", folder=folder)
    assert set(noise.samples) == {"nb201 on white", "nb201 on white, kaiming"}
    with pytest.raises(DataError, match=r"small needs data that are not there: put nb101\.ezb"):
        Small().run(settings, data="white", folder=folder / "empty")


def test_a_second_run_reads_the_store(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Extent(networks=4, batch_size=4)
    first = Small().run(settings, folder=folder, store=tmp_path / "run.db")

    def never(task: Task, archs: Sequence[Any]) -> Any:
        raise AssertionError("scored again")

    monkeypatch.setattr(Task, "score", never)
    again = Small().run(settings, folder=folder, store=tmp_path / "run.db")
    assert (again.rows, again.samples) == (first.rows, first.samples)


def test_given_scores_are_all_that_is_used(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Extent(networks=4, batch_size=4, spaces=("nb201",))
    with Store.open(tmp_path / "run.db") as store:
        first = Small().run(settings, folder=folder, store=store.path)
        rows = [row for row in store.all_scores() if row.origin == "default:0" and not row.proxy.startswith("plain")]
    cifar10 = {row.batch for row in rows if row.batch.startswith("cifar10-")}
    with Store.open(":memory:") as some:
        some.add_scores(row for row in rows if row.batch in cifar10)
        export(some, tmp_path / "scores.csv")
    monkeypatch.setattr(Task, "score", None)
    again = Small().run(replace(settings, networks=99, repeats=2), folder=folder, scores=[tmp_path / "scores.csv"])
    assert set(again.samples) == {"nb201 on cifar10"} and again.scores == [str(tmp_path / "scores.csv")]
    sample = again.samples["nb201 on cifar10"]
    assert sorted(sample.archs) == sorted(first.samples["nb201 on cifar10"].archs), "their networks, no others"
    ours, theirs = ({(r.x, r.statistic): r for r in one.rows if r.y == "NB201-C10"} for one in (again, first))
    for statistic in ("spearman", "kendall"):
        a, b = ours["grad_norm", statistic].found, theirs["grad_norm", statistic].found
        assert a is not None and b is not None and a.n == b.n == 4
        assert a.value == pytest.approx(b.value)
        assert ours["plain", statistic].found is None
    assert sample.unscored["plain"] == {"the scores that were given have none of it": 4}
    assert "NB201-C10: the given scores are of 1 of 2 repeats." in again.left_out
    (lacking,) = [text for text in again.left_out if text.startswith("NB201-C100: left out, the given scores have no")]
    assert "weights default:0" in lacking
    assert "Scores were read from" in "\n".join(circumstances(again))
    with pytest.raises(DataError, match="small cannot be made of these scores"):
        Small().run(settings, folder=folder, seed=7, scores=[tmp_path / "scores.csv"])


def test_a_proxy_is_measured_on_the_repeats_that_have_it(folder: Path, tmp_path: Path) -> None:
    settings = Extent(networks=4, batch_size=4, repeats=2, spaces=("nb201",))
    with Store.open(tmp_path / "run.db") as store:
        first = Small().run(settings, folder=folder, store=store.path)
        rows = [row for row in store.all_scores() if not (row.proxy.startswith("plain") and row.origin == "default:0")]
    with Store.open(":memory:") as some:
        some.add_scores(rows)
        export(some, tmp_path / "scores.csv")
    again = Small().run(settings, folder=folder, scores=[tmp_path / "scores.csv"])
    (whole,), (half,) = (
        [row.found for row in one.rows if (row.x, row.y, row.statistic) == ("plain", "NB201-C10", "spearman")]
        for one in (first, again)
    )
    assert whole is not None and half is not None
    assert half.value == pytest.approx(whole.by_repeat[1]) and not half.by_repeat and half.n == 4
    assert again.samples["nb201 on cifar10"].unscored["plain"] == {"the scores that were given have none of it": 4}


def test_only_what_is_made_of_scores_takes_them(folder: Path) -> None:
    for name in ("sigeo-table3", "sigeo-figure2", "thesis-table6.1"):
        with pytest.raises(UserError, match=f"{name} does not use scores at initialisation: leave out --scores"):
            experiments[name].run(experiments[name].quick, folder=folder, scores=["docs/data"])


def test_the_command_runs_a_table(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(experiments._members, "small", Small())
    monkeypatch.setenv("EPOCHZERO_DATA", str(folder))
    ran = epochzero("reproduce", "small", "--networks", 4, "--quick")
    assert ran.code == 0, ran.err
    assert "nb201 on cifar100" in ran.out and "plain, NB201-C10" in ran.out
    assert "harmonic(params,flops)" in ran.out and "The rest is not measured." in ran.out


# NAS-Bench-1Shot1


class OneShot(OneShotCorrelations):
    """Parameters alone."""

    name = "one-shot"
    source = "nowhere"
    full = quick = Extent(networks=4, batch_size=2)
    spearman: ClassVar[Figures] = {"params": (0.1, 0.2, 0.3)}


def test_one_shot_networks_are_found_by_their_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epochzero_papers.nasi.one_shot_spaces.DRAWS", 300)
    space, nb101 = spaces["nb1shot1_s1"], spaces["nb101"]
    rng = Random(0)
    cells = {space.key(cell): cell for cell in (space.sample(rng) for _ in range(40))}
    rows = []
    for cell in cells.values():
        matrix, ops = nb101.matrix(space.network(cell))
        rows.append([";".join("".join(map(str, line)) for line in matrix), ",".join(ops), rng.random()])
    write_table(tmp_path / "nb101.csv", ["adjacency", "ops", "test_acc_108ep"], rows)
    table = AccuracyTable.read(tmp_path / "nb101.csv")
    archs, chosen = OneShot().sampled(TARGETS[0], table, 4, 0)
    assert len(archs) == len(set(chosen)) == 4
    for arch, row in zip(archs, chosen, strict=True):
        assert space.key(arch) == nb101.key(nb101.parse(table.archs[row]))
    assert OneShot().sampled(TARGETS[0], table, 4, 0) == (archs, chosen), "a pure function of the seed"
    everything, _ = OneShot().sampled(TARGETS[0], table, 1000, 0)
    assert 4 < len(everything) <= len(rows)
    few = AccuracyTable(table.archs[:2], {"test_acc_108ep": ["0.5", "0.6"]}, "few.csv")
    with pytest.raises(DataError, match=r"few\.csv has [012] of 300 random cells of nb1shot1_s1, too few to correlate"):
        OneShot().sampled(TARGETS[0], few, 4, 0)


# Dextr's Table 5


def test_the_share_of_large_layers_is_that_of_an_svd(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dextr_table5.DextrTable5, "spaces", {"NB201": "nb201"})
    found = experiments["dextr-table5"].run(Settings(networks=3, batch_size=1), folder=folder)
    shares = found.samples["NB201"].values[dextr_table5.SHARE]
    row = found.rows[0]
    assert row.found is not None and row.paper == 0.9001
    assert row.found.value == pytest.approx(np.mean(shares)) and row.found.low <= row.found.value <= row.found.high
    x, _ = data.load(folder / "cifar10.npz", size=1, parts=1).part(0)
    space = spaces["nb201"]
    for arch, share in zip(found.samples["NB201"].archs, shares, strict=True):
        plan = space.plan(space.parse(arch), 3, (3, 8, 8)).with_statistics("batch")
        large: list[bool] = []

        def see(node: Any, inputs: Any, output: Any, large: list[bool] = large) -> None:
            matrix = output[0].flatten(1) if output.dim() == 4 else output
            if node.op.kind and 1 not in matrix.shape:
                large.append(bool(np.linalg.svd(matrix.detach().numpy(), compute_uv=False)[0] >= 1))

        execute(plan, plan.module().weights(), (x,), see)
        assert share == pytest.approx(np.mean(large))


def test_the_helper_proxies_are_not_listed() -> None:
    assert dextr_table5.LARGE.name not in proxies
