"""Bad tables on the command line: one sentence before anything is trained, and nothing is lost."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from epochzero.recommend.data.synthetic import Planted
from epochzero_papers.sigeo.click_text import write_text
from tests.command import Ran, epochzero

LAW = Planted(sizes=(20, 20, 10, 10, 6), num_dense=3, pairs=((0, 3), (1, 2)), gates=((0, 4),))
SIZES = {"population": 2, "generations": 1, "tournament": 1, "children": 1, "top": 1, "batch_size": 12, "widest": 16}
Lines = list[bytes]


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Lines:
    """640 good ones."""
    file = tmp_path_factory.mktemp("good") / "good.tsv"
    write_text(file, 640, LAW)
    return file.read_bytes().splitlines()


def search(place: Path, content: bytes, *more: str, split: bool = False, schema: str = "") -> Ran:
    (place / "clicks.tsv").write_bytes(content)
    told = LAW.schema.json()
    if split:
        told |= {"columns": [*told["columns"], "part"], "split": "part"}
    (place / "schema.json").write_text(json.dumps(told))
    sizes = [f"--option={name}={value}" for name, value in SIZES.items()]
    return epochzero(
        "recommend", "search", f"--data={place}/clicks.tsv", f"--schema={schema or place / 'schema.json'}",
        "--preset=reduced", "--proxy=zico", "--warmup=0.05", f"--out={place}/out", "--json", *sizes, *more,
    )  # fmt: skip


def changed(at: int, by: Callable[[bytes], bytes]) -> Callable[[Lines], Lines]:
    return lambda lines: [by(line) if number == at else line for number, line in enumerate(lines, start=1)]


def first_fields(*values: bytes) -> Callable[[bytes], bytes]:
    return lambda line: b"\t".join([*values, *line.split(b"\t")[len(values) :]])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (changed(320, lambda line: line.rpartition(b"\t")[0]), "Line 320 of.*has 8 columns where 9 should be"),
        (changed(320, lambda line: line + b"\t1"), "Line 320 of.*has 10 columns where 9 should be"),
        (
            changed(101, first_fields(b"1", b"nan")),
            "Line 101 of.*'nan' in the column 'I1', which is not a finite number",
        ),
        (changed(101, first_fields(b"1", b"-inf")), "Line 101 of.*'-inf' in the column 'I1'"),
        (changed(640, first_fields(b"2")), "Line 640 of.*has the label '2', where 0 or 1 should be"),
        (changed(1, lambda line: line.rpartition(b"\t")[0] + b"\txyz"), "Line 1 of.*'xyz'"),
        (changed(200, lambda line: b"\x00\xff\xfe garbage"), "Line 200 of.*is not UTF-8 text"),
        (
            lambda lines: [line.rpartition(b"\t")[0] for line in lines],
            "it has 9 columns, and the lines of the file have 8",
        ),
        (lambda lines: [], "is empty"),
        (lambda lines: lines[:9], "has 9 rows: a split 8/1/1 needs at least 10"),
        (lambda lines: [b"0" + line[1:] for line in lines], "All 512 rows of train.*have the label 0"),
    ],
)
def test_a_bad_table_is_one_sentence_before_anything_runs(
    lines: Lines, tmp_path: Path, change: Callable[[Lines], Lines], says: str
) -> None:
    ran = search(tmp_path, b"".join(line + b"\n" for line in change(lines)))
    assert ran.code == 2 and ran.out == "" and "Traceback" not in ran.err
    assert re.search(says, " ".join(ran.err.split()))
    assert "search:" not in ran.err and not (tmp_path / "out" / "chain.db").exists()


def test_skipped_lines_are_counted_and_kept(lines: Lines, tmp_path: Path) -> None:
    bad = changed(320, lambda line: line.rpartition(b"\t")[0])(changed(7, first_fields(b"1", b"inf"))(lines))
    ran = search(tmp_path, b"\n".join(bad), "--bad-lines=skip")
    assert ran.json["skipped_lines"] == 2 and sum(ran.json["rows"].values()) == 638
    assert "2 bad lines put aside" in " ".join(ran.err.split())
    kept = (tmp_path / "out" / "table" / "skipped.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in kept] == ["7", "320"]
    assert kept[1].endswith(bad[319].decode())


def parts(lines: Lines, *names: str) -> Lines:
    """With a column that says the part: the first three quarters are the first, and so on."""
    return [line + b"\t" + names[max(0, number * 8 // len(lines) - 5)].encode() for number, line in enumerate(lines)]


def test_parts_with_one_label_or_none(lines: Lines, tmp_path: Path) -> None:
    named = parts(lines, "train", "val", "test")
    none = search(tmp_path, b"\n".join(parts(lines, "train", "val", "val")), split=True)
    assert none.code == 2 and "has no test rows" in none.err
    one = [b"0" + line[1:] if line.endswith(b"test") else line for line in named]
    ran = search(tmp_path, b"\n".join(one), split=True)
    assert ran.json["best"]["test_auc"] is None and ran.json["best"]["test_log_loss"] > 0
    assert "All test rows have the same label, so there is no AUC on them." in ran.err


def test_files_and_schemas_that_do_not_fit(lines: Lines, tmp_path: Path) -> None:
    content = b"\n".join(lines)
    for schema, says in (("criteo", "it has 40 columns"), ("avazu", "no column 'id'"), ("nope", "No schema is called")):
        ran = search(tmp_path, content, schema=schema)
        assert ran.code == 2 and says in " ".join(ran.err.split())
    packed = gzip.compress(content)
    cut = search(tmp_path, packed[: len(packed) // 2])
    assert cut.code == 2 and "fetch it again" in cut.err
