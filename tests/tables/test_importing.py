"""Tables through the command line, and what is refused on the way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from epochzero.tables import AccuracyTable, TabularBenchmark
from tests.command import epochzero, refusal
from tests.forgetting import plugins_forgotten
from tests.tables.official import CELLS

DATA = Path(__file__).parents[2] / "../shared/data"
NB201, HARDWARE = DATA / "nb201.csv.gz", DATA / "hwnasbench_nb201.csv.gz"
SMALL = f"index,arch_str,cifar10_test,cifar10_test_12ep,note\n0,{CELLS[0]},93.5,88,good\n1,{CELLS[1]},91.25,,\n"


def written(tmp_path: Path, text: str, name: str = "table.csv") -> Path:
    (tmp_path / name).write_text(text)
    return tmp_path / name


def test_a_table_becomes_a_file(tmp_path: Path) -> None:
    out = tmp_path / "a.ezb"
    made = epochzero("data", "import", written(tmp_path, SMALL), "--space", "nb201", "--out", out, "--json").json
    assert (made["space"], made["source"], made["architectures"]) == ("nb201", "table.csv", 2)
    assert [column["name"] for column in made["columns"]] == ["index", "cifar10_test", "cifar10_test_12ep"]
    assert made["notes"] == ["Columns without numbers are left out: note."]
    assert made["unknown"] == {"cifar10_test_12ep": 1}
    assert made["bytes"] == out.stat().st_size
    table = AccuracyTable.read(out)
    assert table.archs == list(CELLS[:2])
    assert table.column("cifar10_test").tolist() == [93.5, 91.25]
    benchmark = TabularBenchmark.open(out)
    assert benchmark.accuracy(CELLS[0]) == 93.5
    assert benchmark.accuracy(CELLS[0], epochs=12) == 88
    assert benchmark.id == made["sha256"]


def test_what_is_printed(tmp_path: Path) -> None:
    out = tmp_path / "a.ezb"
    source = written(tmp_path, SMALL)
    ran = epochzero("data", "import", source, "--space", "nb201", "--out", out)
    assert ran.code == 0
    assert "2 architectures of nb201 from table.csv" in ran.out
    assert "columns  index, cifar10_test, cifar10_test_12ep" in ran.out
    assert "accuracies are in percent" in ran.out and "left out: note" in ran.out
    assert "1 value is not known: cifar10_test_12ep 1." in ran.out
    assert epochzero("data", "show", out).out == ran.out
    shown = epochzero("data", "show", out, "--arch", CELLS[1]).out
    assert "91.25" in shown and "not known" in shown


def test_an_isomorphic_row_is_said_to_be_one(tmp_path: Path) -> None:
    table = "arch,test_acc\nconv1x1:0/conv3x3:0/output:12,0.9\n"
    out = tmp_path / "a.ezb"
    assert epochzero("data", "import", written(tmp_path, table), "--space", "nb101", "--out", out).code == 0
    ran = epochzero("data", "show", out, "--arch", "conv3x3:0/conv1x1:0/output:12")
    assert ran.code == 0 and "0.9" in ran.out
    assert "The row is that of an isomorphic architecture: conv1x1:0/conv3x3:0/output:12" in ran.err
    assert "no row for architecture" in refusal("data", "show", out, "--arch", "conv3x3:0/output:1")


def test_columns_units_and_joins(tmp_path: Path) -> None:
    accuracies = written(tmp_path, f"arch,x_test_seed0,x_test_seed1,y_test\n{CELLS[0]},.5,.7,.1\n{CELLS[1]},.6,.6,.2\n")
    speed = written(tmp_path, f"arch,phone_latency\n{CELLS[1]},4\n{CELLS[2]},9\n", "speed.csv")
    out = tmp_path / "a.ezb"
    asked = ["data", "import", accuracies, "--space", "nb201", "--out", out]
    assert epochzero(*asked, "--columns", "x_*", "--mean", "--unit", "percent", "--join", speed).code == 0
    benchmark = TabularBenchmark.open(out)
    assert [column.full_name for column in benchmark.columns] == ["x_test", "phone_latency"]
    assert benchmark.column("x_test").tolist() == pytest.approx([60, 60])
    np.testing.assert_array_equal(benchmark.column("phone_latency"), [np.nan, 4])
    assert benchmark.notes == ["1 of 2 architectures are not in speed.csv."]
    assert epochzero("data", "import", out, "--space", "nb201", "--out", tmp_path / "b.ezb").code == 0
    assert TabularBenchmark.open(tmp_path / "b.ezb").columns == benchmark.columns


def test_repeated_rows_are_joined_and_counted(tmp_path: Path) -> None:
    path, out = written(tmp_path, SMALL + f"2,{CELLS[0]},94.5,88,\n"), tmp_path / "a.ezb"
    made = epochzero("data", "import", path, "--space", "nb201", "--out", out, "--json").json
    assert made["architectures"] == 2
    assert made["notes"][0] == "1 of 3 rows repeats an architecture: its numbers are means over its rows."
    assert AccuracyTable.read(out).column("cifar10_test").tolist() == [94, 91.25]
    ran = epochzero("bench", "--table", path, "--target", "index", "--proxy", "params", "--batch-size", 2)
    assert "table.csv: 1 of 3 rows repeats an architecture" in ran.out + ran.err


@pytest.mark.parametrize(
    ("content", "more", "message"),
    [
        (SMALL, ("--columns", "cifar10_tset"), "has no column 'cifar10_tset'. Did you mean 'cifar10_test'?"),
        ("name,acc\na,1\n", (), "has no column 'arch_str' or 'arch'"),
        (SMALL + "2,|what~0|,90,90,\n", (), "Row 3 of {path} does not fit nb201: "),
        (SMALL + f"2,{CELLS[2]},many,90,\n", (), "Column 'cifar10_test' of {path} holds 'many' in row 3"),
        (SMALL + f"2,{CELLS[2]},.9,90,\n", (), "'cifar10_test' of {path} seems to mix fractions and percents"),
        (f"arch,a_test,b_test\n{CELLS[0]},.9,90\n", (), "Choose one with --unit percent or --unit fraction"),
        (f"arch,a_test\n{CELLS[0]},900\n", (), "is named as an accuracy but holds values from 900 to 900"),
        (SMALL, ("--unit", "promille"), "percent or fraction, not 'promille'"),
        (SMALL, ("--join", "absent.csv"), "There is no file or folder absent.csv"),
        (SMALL, ("--space", "nb210"), "Did you mean 'nb201'?"),
    ],
)
def test_bad_tables_import_nothing(tmp_path: Path, content: str, more: tuple[str, ...], message: str) -> None:
    path = written(tmp_path, content)
    said = refusal("data", "import", path, "--space", "nb201", "--out", tmp_path / "a.ezb", *more)
    assert message.format(path=path) in said
    assert [child.name for child in tmp_path.iterdir()] == ["table.csv"]


def test_sources_and_targets_that_cannot_be(tmp_path: Path) -> None:
    path = written(tmp_path, SMALL)
    asked = ("data", "import", path, "--space", "nb201", "--out")
    assert "let its name end in .ezb" in refusal(*asked, tmp_path / "a.db")
    assert "cannot be written" in refusal(*asked, tmp_path / "none" / "a.ezb")
    (tmp_path / "empty").mkdir()
    for source, message in (("empty", "has an unknown format"), ("absent.csv", "There is no file or folder")):
        said = refusal("data", "import", tmp_path / source, "--space", "nb201", "--out", tmp_path / "a.ezb")
        assert message in said
    odd = written(tmp_path, "", "odd.txt")
    assert "has an unknown format" in refusal("data", "import", odd, "--space", "nb201", "--out", tmp_path / "a.ezb")
    sampled = refusal(*asked, tmp_path / "a.ezb", "--sample", 10)
    assert "--sample is for a surrogate (NAS-Bench-301)" in sampled and "Leave it out" in sampled
    assert "Missing option '--space'" in refusal("data", "import", path, "--out", tmp_path / "a.ezb")


def test_a_changed_or_cut_file_is_refused_everywhere(tmp_path: Path) -> None:
    out = tmp_path / "a.ezb"
    epochzero("data", "import", written(tmp_path, SMALL), "--space", "nb201", "--out", out)
    content = out.read_bytes()
    place = content.index(np.array(93.5, np.float32).tobytes())
    bench = ("bench", "--table", out, "--target", "cifar10_test", "--proxy", "params")
    for broken in (content[:place] + np.array(99.5, np.float32).tobytes() + content[place + 4 :], content[:-64]):
        out.write_bytes(broken)
        for asked in (("data", "show", out), bench):
            assert "a.ezb is damaged or was changed" in refusal(*asked)


def test_an_import_replaces_an_old_file_only_when_it_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "a.ezb"
    assert epochzero("data", "import", written(tmp_path, SMALL), "--space", "nb201", "--out", out).code == 0
    before = out.read_bytes()
    refusal("data", "import", written(tmp_path, SMALL + "x,y\n"), "--space", "nb201", "--out", out)
    assert out.read_bytes() == before


@pytest.mark.skipif(not NB201.exists() or not HARDWARE.exists(), reason="the tables of NB201 are not on this machine")
def test_all_of_nas_bench_201_with_its_latencies(tmp_path: Path) -> None:
    out = tmp_path / "nb201.ezb"
    asked = ("data", "import", NB201, "--space", "nb201", "--join", HARDWARE, "--out", out, "--json")
    made = epochzero(*asked).json
    assert made["architectures"] == 15_625 and made["bytes"] < 4_000_000
    source, table = AccuracyTable.read(NB201), AccuracyTable.read(out)
    assert table.archs == source.archs
    for target in ("cifar10_test", "imagenet16_val_12ep", "params_M"):
        np.testing.assert_array_equal(table.column(target), source.column(target))
    hardware = AccuracyTable.read(HARDWARE)
    benchmark = TabularBenchmark.open(out)
    for row in (0, 6111, 15_624):
        arch = source.archs[row]
        assert benchmark.find(arch).row == row
        assert benchmark.accuracy(arch, "cifar10") == source.lookup(arch, "cifar10_test")
        latency = benchmark.cost(arch)["cifar10_pixel3_latency"]
        assert latency == hardware.lookup(arch, "cifar10_pixel3_latency")


FORMAT = '''
"""Accuracies as lines of `architecture = percent`."""
import numpy as np
from epochzero.tables.columns import Column
from epochzero.tables.formats import Format, Source, formats
from epochzero.tables.rows import Rows

def read(source: Source) -> Rows:
    lines = [line.split(" = ") for line in source.path.read_text().splitlines()]
    accuracy = Column("cifar10_test", "accuracy", "cifar10", "test", epochs=200, unit="percent")
    return Rows([arch for arch, _ in lines], {accuracy: np.array([float(x) for _, x in lines])}, str(source.path))

formats.register("lines", Format("a .lines file", lambda source: source.ends(".lines"), read))
'''


def test_one_more_format_is_one_file(tmp_path: Path) -> None:
    plugin = written(tmp_path, FORMAT, "lines_format.py")
    table = written(tmp_path, f"{CELLS[0]} = 93.5\n{CELLS[1]} = 91.25\n", "a.lines")
    with plugins_forgotten():
        asked = ("data", "import", table, "--plugin", plugin, "--space", "nb201", "--out", tmp_path / "a.ezb")
        assert epochzero(*asked).code == 0
        assert "Give a .lines file" in refusal(*asked[:2], plugin, *asked[3:]).replace("an imported .ezb, ", "")
    assert TabularBenchmark.open(tmp_path / "a.ezb").accuracy(CELLS[1], "cifar10") == 91.25
