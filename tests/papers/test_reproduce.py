"""`epochzero reproduce`: its output and files, and invalid input."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from epochzero.errors import DataError, UserError
from epochzero.registry import experiments
from epochzero.stats.text import short
from epochzero_papers.harness import report
from epochzero_papers.harness.base import Result, Settings
from epochzero_papers.harness.report import as_csv, as_markdown, circumstances, plot, table, write
from epochzero_papers.nasi import figure1 as nasi_figure1
from epochzero_papers.thesis import table7_4 as thesis_table7_4
from tests.command import epochzero, refusal
from tests.data.data_files import save
from tests.papers.small import SMALL_IMAGES, Counts, small_images

TINY = Settings(networks=3, batch_size=4)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_images(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def counts(images: Path) -> Result:
    return Counts().run(Settings(networks=12, batch_size=2), seed=3, data=images)


# Files


def test_numbers_are_written_short() -> None:
    assert [short(value) for value in (0.8921, -0.1, 1.0, -1.0, -0.0001, 0.9999)] == [
        ".892",
        "-.100",
        "1.000",
        "-1.000",
        ".000",
        "1.000",
    ]


def test_files_hold_the_result(counts: Result, tmp_path: Path) -> None:
    names = write(counts, tmp_path)
    assert names[:3] == ["result.json", "result.csv", "result.md"]
    read = json.loads((tmp_path / "result.json").read_text())
    assert read["rows"][0]["found"]["value"] == pytest.approx(counts.rows[0].found.value)  # type: ignore[union-attr]
    assert read["samples"]["nb201"]["values"] == counts.samples["nb201"].values
    assert read["rows"][0]["difference"] == counts.rows[0].difference
    assert read["settings"] == {"networks": 12, "batch_size": 2, "repeats": 1}
    assert read["seed"] == 3
    assert read["machine"]["cpu_count"] and read["versions"]["torch"] and read["date"]
    assert "commit" not in json.dumps(read)
    rows = list(csv.DictReader((tmp_path / "result.csv").read_text().splitlines()))
    assert [row["statistic"] for row in rows] == ["pearson", "spearman", "kendall", "pearson"]
    assert (rows[0]["sample"], rows[0]["n"], rows[0]["paper"]) == ("nb201", "12", "0.5")
    assert (rows[3]["value"], rows[3]["unscored"], rows[3]["paper"]) == ("", "12", "")


def test_markdown_sets_ours_beside_the_papers(counts: Result) -> None:
    lines = as_markdown(counts).splitlines()
    assert lines[0] == "## counts"
    heads = "|  | statistic | n | ours [95 %] | paper | difference |"
    first = lines.index(heads) + 2
    found = counts.rows[0].found
    assert found is not None
    assert lines[first].startswith(f"| params, flops | pearson | 12 | {short(found.value)} [{short(found.low)}, ")
    assert lines[first].endswith(f"| .50 | +{short(found.value - 0.5, 2)} |")
    assert sum(line.startswith("- Data of ") for line in lines) == 2, "two batches"
    assert all(line.count("|") == heads.count("|") for line in lines[first - 2 : first + 4])


def test_several_samples_are_told_apart(counts: Result) -> None:
    row, sample = counts.rows[0], counts.samples["nb201"]
    both = replace(
        counts, rows=[row, replace(row, sample="other", paper=None)], samples={"nb201": sample, "other": sample}
    )
    lines = as_markdown(both).splitlines()
    assert "| sample |  | statistic | n | ours [95 %] | paper | difference |" in lines
    assert [line.split(" | ")[0] for line in lines if "params, flops" in line] == ["| nb201", "| other"]
    bars = as_markdown(replace(both, rows=[replace(row, x="mean |g|")]))
    assert r"| nb201 | mean \|g\|, flops | pearson |" in bars, "a bar in a name does not end a cell"
    assert [line.split(",")[0] for line in as_csv(both).splitlines()] == ["sample", "nb201", "other"]
    assert table(both.rows)[1][1][-2:] == ["", ""], "no figure of the paper's, no difference"


def test_plots_come_with_matplotlib(counts: Result, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots need matplotlib")
    assert write(counts, tmp_path)[3:] == ["result.png", "result.svg"]
    assert (tmp_path / "result.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "result.svg").read_text()
    nothing = replace(counts, rows=[row for row in counts.rows if row.found is None])
    assert nothing.rows and plot(nothing, tmp_path) == [], "a pair without a figure has no panel"


def test_the_first_repeat_with_values_is_drawn_and_their_number_told(
    counts: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="plots need matplotlib")
    sample, row = counts.samples["nb201"], counts.rows[0]
    known = sample.values[row.x]
    values = {**sample.values, row.x: [None] * len(known), f"{row.x}, repeat 2": known, f"{row.x}, repeat 3": known}
    later = replace(counts, rows=[row], samples={"nb201": replace(sample, values=values)})
    drawn: list[Any] = []
    monkeypatch.setattr(report, "save", lambda *given: drawn.extend(given))
    plot(later, tmp_path)
    axes = drawn[0].axes[0]
    assert axes.get_xlabel() == f"{row.x}, repeat 2"
    assert axes.collections[0].get_offsets()[:, 0].tolist() == known
    assert f"{row.x}: of 2 of 3 repeats, those with a value." in circumstances(later)
    assert not any("repeats, those" in fact for fact in circumstances(counts))


# The command


@pytest.fixture
def with_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "counts" not in experiments
    monkeypatch.setitem(experiments._members, "counts", Counts())


def test_reproduce_prints_a_table(with_counts: None, images: Path) -> None:
    ran = epochzero("reproduce", "counts", "--networks", 5, "--data", images)
    assert ran.code == 0, ran.err
    assert "params, flops   pearson    5" in ran.out and "paper" in ran.out and "difference" in ran.out
    assert "Networks of nb201; networks 5, batch_size 2, repeats 1; seed 0" in ran.out
    assert "tf_tas: 5 without a value" in ran.out
    assert "params, tf_tas: none, for a correlation needs at least 3 networks; there are 0." in ran.out


def test_reproduce_prints_json_and_writes_files(
    with_counts: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    ran = epochzero("reproduce", "counts", "--quick", "--json", "--out", tmp_path / "new" / "folder", "--seed", 2)
    assert ran.json["settings"] == {"networks": 10, "batch_size": 2, "repeats": 1}
    assert ran.json["seed"] == 2
    assert "No plot: matplotlib is not installed." in ran.err
    assert {file.name for file in (tmp_path / "new" / "folder").iterdir()} == {"result.json", "result.csv", "result.md"}
    assert json.loads((tmp_path / "new" / "folder" / "result.json").read_text()) == ran.json


def test_reproduce_runs_a_recipe_on_given_data(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nasi_figure1.NasiFigure1, "quick", TINY)
    monkeypatch.setattr(nasi_figure1.NasiFigure1, "spaces", {"S1": "nb1shot1_s1"})
    found = epochzero("reproduce", "nasi-figure1", "--quick", "--networks", 3, "--data", images, "--json").json
    assert [row["y"] for row in found["rows"]] == 2 * ["random labels"] + 2 * ["random data"]
    assert "16 of the 40 training samples of images.npz" in found["samples"]["S1"]["data"]["true"]


@pytest.fixture
def few(with_counts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three experiments: one that runs, one whose data are missing, one that fails."""

    class Broken(Counts):
        name = "broken"

        def measure(self, work: Any) -> Any:
            raise DataError("These data are of no use.")

    monkeypatch.setitem(experiments._members, "broken", Broken())
    kept = {name: experiments[name] for name in ("counts", "broken", "nasi-figure3", "thesis-table7.8")}
    monkeypatch.setattr(experiments, "_members", kept)


def test_all_runs_what_can_be_run_and_ends_with_an_error_if_one_has(few: None, images: Path, tmp_path: Path) -> None:
    asked = ("reproduce", "--all", "--quick", "--data", images, "--data-folder", tmp_path / "none")
    ran = epochzero(*asked, "--out", tmp_path / "out")
    assert ran.code == 2
    assert "counts: " in ran.out and "networks 10, batch_size 2, repeats 1; seed 0" in " ".join(ran.out.split())
    said = " ".join(ran.err.split())
    assert "nasi-figure3: left out, needs data" in said and "thesis-table7.8: left out, planned" in said
    assert "broken: These data are of no use." in said
    assert "1 of 2 experiments ended with an error: broken." in said
    assert (tmp_path / "out" / "counts" / "result.json").is_file() and not (tmp_path / "out" / "broken").exists()
    experiments._members.pop("broken")
    ran = epochzero(*asked, "--json")
    assert ran.code == 0 and [one["experiment"] for one in ran.json["experiments"]] == ["counts"]


def test_all_takes_no_name() -> None:
    assert "leave out the name" in refusal("reproduce", "--all", "dextr-table1")


def test_what_cannot_be_reproduced(with_counts: None, tmp_path: Path) -> None:
    assert "No experiment is called 'nasi-table8'. Did you mean 'nasi-table" in refusal("reproduce", "nasi-table8")
    assert "There is no file or folder none.npz" in refusal("reproduce", "counts", "--data", "none.npz")
    assert "The device 'warp' cannot be used here" in refusal("reproduce", "counts", "--device", "warp")
    (tmp_path / "file").write_text("")
    assert "choose another --out" in refusal("reproduce", "counts", "--out", tmp_path / "file")
    unlabelled = save(tmp_path / "plain.npz", x=SMALL_IMAGES)
    with pytest.raises(DataError, match="these data have none"):
        experiments["nasi-figure1"].run(TINY, data=unlabelled)
    for noise in ("pink", "white"):
        assert "give --data FILE with real images and labels" in refusal("reproduce", "nasi-figure1", "--data", noise)
    with pytest.raises(DataError, match="'pink' is random itself"):
        experiments["nasi-figure1"].run(TINY, data="pink")
    with pytest.raises(DataError, match=r"nasi-figure1 needs data that are not there: put cifar10.npz or .* into the"):
        experiments["nasi-figure1"].run(TINY, folder=tmp_path)
    with pytest.raises(UserError, match="at least 3 networks, not 2"):
        Counts().run(replace(Counts.quick, networks=2))


def test_without_labels_every_row_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thesis_table7_4.ThesisTable74, "spaces", {"nb201": "nb201"})
    unlabelled = save(tmp_path / "plain.npz", x=SMALL_IMAGES)
    result = experiments["thesis-table7.4"].run(Settings(networks=3, batch_size=3), data=unlabelled)
    assert all(row.found is None and row.unscored == 3 for row in result.rows)
    for sample in result.samples.values():
        assert any("labels" in why for why in sample.unscored["grad"])
        assert sample.unscored["naswot"] == {}
