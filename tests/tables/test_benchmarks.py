from __future__ import annotations

import builtins
import gzip
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epochzero.errors import UserError
from epochzero.tables import AccuracyTable

SMALL = "index,arch_str,cifar10_test,note\n0,a|b,91.5,good\n1,c|d,10,\n2,e|f,9.35e1,fair\n"
NB101 = Path(__file__).parents[2] / "../shared/data/nb101_15k.csv.gz"
NB201 = Path(__file__).parents[2] / "../shared/data/nb201.csv.gz"


def written(tmp_path: Path, text: str | bytes, name: str = "table.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refused(path: Path | str) -> str:
    with pytest.raises(UserError) as caught:
        AccuracyTable.read(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def small(tmp_path: Path) -> AccuracyTable:
    return AccuracyTable.read(written(tmp_path, SMALL))


def parquet(tmp_path: Path, **columns: list[Any]) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as files

    path = tmp_path / "table.parquet"
    files.write_table(pyarrow.table(columns), path)
    return path


def test_a_table_is_read(small: AccuracyTable) -> None:
    assert small.archs == ["a|b", "c|d", "e|f"]
    assert small.columns == ["index", "cifar10_test", "note"]
    assert len(small) == 3
    column = small.column("cifar10_test")
    assert column.dtype == np.float64
    assert column.tolist() == [91.5, 10.0, 93.5]
    assert small.lookup("e|f", "cifar10_test") == 93.5


def test_rows_of_one_architecture_become_one_with_their_means(tmp_path: Path) -> None:
    content = "arch,acc,half,params,note,why\na,60,,3179304,x,\nb,61,5,7,y,z\na,62,4,3179304,w,q\na,61.5,,3179304,v,\n"
    table = AccuracyTable.read(written(tmp_path, content))
    assert table.archs == ["a", "b"]
    assert table.column("acc").tolist() == pytest.approx([183.5 / 3, 61])
    assert table.column("half").tolist() == [4, 5] and table.column("params").tolist() == [3179304, 7]
    assert [list(table.cells(name)) for name in ("note", "why")] == [["x", "y"], ["q", "z"]]
    assert table.notes == ["2 of 4 rows repeat an architecture: its numbers are means over its rows."]
    assert AccuracyTable.read(written(tmp_path, "ops,adjacency,n\na,01,1\na,01,2\n")).column("n").tolist() == [1.5]
    assert AccuracyTable.read(written(tmp_path, SMALL)).notes == []


def test_a_column_cannot_be_changed_by_its_reader(small: AccuracyTable) -> None:
    with pytest.raises(ValueError, match="read-only"):
        small.column("cifar10_test")[0] = 0


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv.gz", gzip.compress(SMALL.encode(), mtime=0)),
        ("T.CSV", SMALL.encode()),
        ("bom.csv", b"\xef\xbb\xbfarch_str,cifar10_test\na|b,91.5\nc|d,10\ne|f,93.5\n"),
        ("crlf.csv", SMALL.replace("\n", "\r\n").encode() + b"\r\n\r\n"),
        ("arch.csv", SMALL.replace("arch_str", " arch ").encode()),
    ],
)
def test_the_same_table_in_other_dress(tmp_path: Path, name: str, content: bytes) -> None:
    table = AccuracyTable.read(str(written(tmp_path, content, name)))
    assert table.archs == ["a|b", "c|d", "e|f"]
    assert table.column("cifar10_test").tolist() == [91.5, 10.0, 93.5]


def test_quoted_architectures_may_hold_commas(tmp_path: Path) -> None:
    table = AccuracyTable.read(written(tmp_path, 'arch,acc\n"1,2,3",50\n"3,2,1",60\n'))
    assert table.lookup("3,2,1", "acc") == 60


def test_an_architecture_in_two_columns_is_one_text(tmp_path: Path) -> None:
    table = AccuracyTable.read(written(tmp_path, 'ops,acc,adjacency\n"input,output",50, 01;00 \n"a,b",60,00;00\n'))
    assert table.archs == ["01;00 input,output", "00;00 a,b"]
    assert table.columns == ["acc"]
    assert table.lookup("00;00 a,b", "acc") == 60


def test_a_column_of_architectures_comes_before_two(tmp_path: Path) -> None:
    table = AccuracyTable.read(written(tmp_path, "adjacency,ops,arch\n01,a,x\n10,b,y\n"))
    assert table.archs == ["x", "y"]
    assert table.columns == ["adjacency", "ops"]


def test_parquet(tmp_path: Path) -> None:
    path = parquet(tmp_path, arch_str=["x", "y"], acc=[1.5, 2.5], n=[3, 4], gaps=[1.0, None], text=["p", "q"])
    table = AccuracyTable.read(path)
    assert table.archs == ["x", "y"]
    assert table.column("acc").tolist() == [1.5, 2.5]
    assert table.column("n").tolist() == [3.0, 4.0]
    with pytest.raises(UserError, match=r"'gaps' .* holds nothing in row 2,"):
        table.column("gaps")
    with pytest.raises(UserError, match=r"'text' .* holds 'p' in row 1 \(and 1 more rows"):
        table.column("text")


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, b"PAR1", "t.parquet")
    imported = builtins.__import__

    def without_pyarrow(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return imported(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without_pyarrow)
    assert "pip install 'epochzero[parquet]'" in refused(path)


def test_a_broken_parquet_file(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    assert "is not a Parquet table" in refused(written(tmp_path, b"these are not bytes of Parquet", "t.parquet"))


def test_parquet_architectures_must_be_text(tmp_path: Path) -> None:
    assert "Row 1 of" in refused(parquet(tmp_path, arch=[17, 18], acc=[1.0, 2.0]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("arch_str,acc\n", "has a header but no rows"),
        (
            "name,acc\na,1\n",
            "no column 'arch_str' or 'arch' with the architectures, nor both 'adjacency' and 'ops', nor 'model'. "
            "Its columns: name, acc.",
        ),
        ("arch,acc\na,1\nb\n", "Row 2 of {path} has 1 cells where the header has 2."),
        ("arch,acc\na,1\n ,2\n", "Row 2 of {path} has no architecture text in column 'arch'."),
        ("ops,acc\na,1\n", "nor both 'adjacency' and 'ops', nor 'model'. Its columns: ops, acc."),
        ("ops,adjacency,acc\na,01;00,1\nb,,2\n", "Row 2 of {path} has no architecture text in column 'adjacency'."),
        ("arch,acc,acc\na,1,2\n", "more than one column called 'acc'"),
        (b"\x80\x81\xff\n", "is not a CSV table"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = written(tmp_path, content)
    assert message.format(path=path) in refused(path)


@pytest.mark.parametrize(
    "content", [b"not gzip", gzip.compress(SMALL.encode(), mtime=0)[:-12], b"\x1f\x8b\x08" + b"\0" * 30]
)
def test_a_broken_gzip_file_is_refused(tmp_path: Path, content: bytes) -> None:
    assert "is not a CSV table" in refused(written(tmp_path, content, "t.csv.gz"))


def test_files_that_are_not_there_or_of_another_kind(tmp_path: Path) -> None:
    assert "There is no file" in refused(tmp_path / "absent.csv")
    (tmp_path / "folder.csv").mkdir()
    assert "There is no file" in refused(tmp_path / "folder.csv")
    assert "must end in .csv, .csv.gz, .parquet" in refused(written(tmp_path, b"\x80\x04.", "nb201.pickle"))


def test_an_unknown_column_gets_a_hint(small: AccuracyTable) -> None:
    with pytest.raises(UserError) as caught:
        small.column("cifar_test")
    assert "Did you mean 'cifar10_test'? Its columns: index, cifar10_test, note." in str(caught.value)


@pytest.mark.parametrize("cell", ["", "nan", "inf", "n/a", "12%"])
def test_a_cell_that_is_no_finite_number_is_named(tmp_path: Path, cell: str) -> None:
    table = AccuracyTable.read(written(tmp_path, f"arch,acc,other\na,1,7\nb,{cell},8\n"))
    with pytest.raises(UserError) as caught:
        table.column("acc")
    shown = f"'{cell}'" if cell else "nothing"
    assert f"Column 'acc' of {table.source} holds {shown} in row 2, where a finite number" in str(caught.value)
    assert table.column("other").tolist() == [7, 8]


def test_an_unknown_architecture(small: AccuracyTable) -> None:
    with pytest.raises(UserError, match="no row for architecture 'z'"):
        small.lookup("z", "cifar10_test")


def numbered(n: int) -> AccuracyTable:
    return AccuracyTable([str(i) for i in range(n)], {})


def test_a_sample_is_distinct_fixed_by_its_seed_and_grows() -> None:
    table = numbered(100)
    sample = table.sample(30, seed=1)
    assert len(set(sample)) == 30
    assert set(sample) <= set(range(100))
    assert all(type(row) is int for row in sample)
    assert sample == table.sample(30, seed=1) == table.sample(60, seed=1)[:30]
    assert sample != table.sample(30, seed=2)
    assert sorted(table.sample(100, seed=0)) == list(range(100))


def test_a_sample_is_uniform() -> None:
    table = numbered(10)
    drawn = np.bincount([row for seed in range(1000) for row in table.sample(3, seed)], minlength=10)
    assert drawn.min() > 240  # expected 300, standard deviation 14.5
    assert drawn.max() < 360


@pytest.mark.parametrize("n", [-1, 0, 11])
def test_a_sample_that_cannot_be_drawn(n: int) -> None:
    with pytest.raises(UserError, match=f"1 to 10 architectures, not {n}"):
        numbered(10).sample(n, seed=0)


@pytest.mark.skipif(not NB101.exists(), reason="the NAS-Bench-101 table is not on this machine")
def test_the_table_of_nas_bench_101() -> None:
    table = AccuracyTable.read(NB101)
    assert len(table) == 15_000
    assert table.archs[0].startswith("0100010;0010010;") and table.archs[0].endswith(",conv1x1-bn-relu,output")
    assert 0 <= table.column("test_acc_108ep").min() < table.column("test_acc_108ep").max() < 0.95


@pytest.mark.skipif(not NB201.exists(), reason="the NAS-Bench-201 table is not on this machine")
def test_all_of_nas_bench_201_at_speed() -> None:
    start = time.process_time()
    table = AccuracyTable.read(NB201)
    accuracy = table.column("cifar10_test")
    assert time.process_time() - start < 1.5  # about 0.2 s
    assert len(table) == 15_625
    assert int(accuracy.argmax()) == 6111
    assert table.lookup(table.archs[6111], "cifar10_test") == pytest.approx(94.373, abs=5e-4)
    with pytest.raises(UserError, match="'unique_str'"):
        table.column("unique_str")
