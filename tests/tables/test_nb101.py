from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest

from epochzero.errors import DataError
from epochzero.tables import AccuracyTable, TabularBenchmark
from epochzero.tables.columns import Column
from epochzero.tables.formats import Source, nb101
from tests.command import epochzero, refusal
from tests.tables.official import HASHED, evaluation, record, run_101, varint

FIRST, SECOND = HASHED


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two cells, two lengths of training, up to three runs, the cells' runs mixed."""
    runs = [
        run_101(FIRST, 108, 0.91, 0.90, 1000.0),
        run_101(SECOND, 108, 0.81, 0.80, 500.0, params=7),
        run_101(FIRST, 4, 0.31, 0.30, 40.0),
        run_101(FIRST, 108, 0.93, 0.92, 1200.0),
        run_101(FIRST, 108, 0.95, 0.94, 1100.0),
        run_101(SECOND, 108, 0.83, 0.82, 700.0, params=7),
    ]
    (tmp_path / "nasbench_full.tfrecord").write_bytes(b"".join(runs))
    return tmp_path / "nasbench_full.tfrecord"


def test_records_become_rows(path: Path) -> None:
    rows = nb101.read(Source(path))
    assert rows.keys == [FIRST, SECOND]
    assert rows.archs[0].startswith("0100010;0010010;0001000;") and rows.archs[0].endswith(",conv1x1-bn-relu,output")
    values = {column.full_name: numbers for column, numbers in rows.columns.items()}
    np.testing.assert_array_equal(values["val_acc_108ep_seed0"], [0.91, 0.81])
    np.testing.assert_array_equal(values["test_acc_108ep_seed1"], [0.92, 0.82])
    np.testing.assert_array_equal(values["test_acc_108ep_seed2"], [0.94, np.nan])
    np.testing.assert_array_equal(values["val_acc_4ep_seed0"], [0.31, np.nan])
    np.testing.assert_allclose(values["train_seconds_108ep"], [1100, 600])
    np.testing.assert_array_equal(values["params"], [3_729_162, 7])
    assert Column("val_acc_108ep", "accuracy", "cifar10", "val", 108, 2, "fraction") in rows.columns


def test_the_command_and_lookups(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "nb101.ezb"
    printed = epochzero("data", "import", path, "--space", "nb101", "--out", out).out
    assert "2 architectures of nb101 from nasbench_full.tfrecord" in printed
    assert "accuracies are fractions" in printed
    assert "holds 2 of the 423,624 cells" in printed
    benchmark = TabularBenchmark.open(out)
    cell = "0110;0011;0001;0000 input,conv1x1-bn-relu,maxpool3x3,output"
    with pytest.raises(DataError, match="no row for architecture"):
        benchmark.accuracy(cell)
    first = benchmark.archs[0]
    assert benchmark.accuracy(first) == pytest.approx((0.90 + 0.92 + 0.94) / 3)
    assert benchmark.accuracy(first, "cifar10", "val", 108, seed=2) == 0.95
    assert benchmark.accuracy(first, split="val", epochs=4) == 0.31
    assert benchmark.cost(first)["params"] == 3_729_162
    table = AccuracyTable.read(out)
    assert table.column("test_acc_108ep").tolist() == pytest.approx([0.92, 0.81])


def test_a_hash_that_is_not_the_cells_is_found(tmp_path: Path) -> None:
    good = run_101(FIRST, 108, 0.9, 0.9, 1.0)
    fields = json.loads(good[12:-4])
    bad = record(json.dumps([SECOND, *fields[1:]]).encode())
    (tmp_path / "a.tfrecord").write_bytes(bad)
    said = refusal("data", "import", tmp_path / "a.tfrecord", "--space", "nb101", "--out", tmp_path / "a.ezb")
    assert f"Row 1 of {tmp_path / 'a.tfrecord'} has the hash '{SECOND}', which does not match its cell" in said
    (tmp_path / "a.tfrecord").write_bytes(good + bad)
    with pytest.raises(DataError, match="two hashes for one cell"):
        nb101.read(Source(tmp_path / "a.tfrecord"))


def test_a_damaged_file_imports_nothing(path: Path, tmp_path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-30] ^= 1
    path.write_bytes(bytes(content))
    said = refusal("data", "import", path, "--space", "nb101", "--out", tmp_path / "a.ezb")
    assert f"Record 6 of {path} is damaged or cut short. Download the file again." in said
    assert [child.name for child in tmp_path.iterdir()] == [path.name]


def test_records_of_another_space(path: Path, tmp_path: Path) -> None:
    said = refusal("data", "import", path, "--space", "nb201", "--out", tmp_path / "a.ezb")
    assert f"Row 1 of {path} does not fit nb201" in said


def metrics(content: bytes) -> bytes:
    matrix, ops = HASHED[FIRST]
    return json.dumps([FIRST, 108, matrix, ops, base64.b64encode(content).decode()]).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"[1, 2]",
        b"\xff",
        b'["a", 108, "010", "input,output", ""]',
        b'["a", 108, "0100", "input,output", "%%%"]',
        metrics(b""),
        metrics(evaluation(0, 0, 0, 0, 0) * 2),
        metrics(evaluation(0, 0, 0, 0, 0) * 3 + b"\x0b"),
        metrics(b"\x0a" + varint(50)),
        metrics(b"\x80" * 20),
        metrics(b"\x0a\x00" * 3),
        metrics(b"\x09\x00"),
    ],
)
def test_records_that_are_no_runs(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "a.tfrecord").write_bytes(run_101(FIRST, 108, 0.9, 0.9, 1.0) + record(body))
    with pytest.raises(DataError, match=r"Record 2 of .* is not a run of NAS-Bench-101"):
        nb101.read(Source(tmp_path / "a.tfrecord"))


def test_fields_of_every_kind() -> None:
    content = varint(5 << 3 | 0) + varint(300) + b"\x15\x00\x00\x00\x00" + b"\x1a\x02hi" + b"\x21" + bytes(8)
    assert list(nb101.fields(content)) == [(5, 300), (3, b"hi"), (4, 0.0)]
