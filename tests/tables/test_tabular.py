from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epochzero.errors import DataError, UserError
from epochzero.registry import spaces
from epochzero.tables import AccuracyTable, Benchmark, Match, TabularBenchmark, file
from epochzero.tables import tabular as module
from epochzero.tables.columns import Column, described
from epochzero.tables.rows import Rows

SEEDS = (Column("a_test", "accuracy", "a", "test", 20, seed, "percent") for seed in (1, 2))
COLUMNS = {
    **dict(zip(SEEDS, ([50.0, 60.0, 70.0], [52.0, np.nan, 71.0]), strict=True)),
    Column("a_test_5ep", "accuracy", "a", "test", 5, None, "percent"): [10.0, 20.0, 30.0],
    Column("b_val", "accuracy", "b", "val", None, None, "percent"): [11.0, np.nan, 31.0],
    Column("params_M", "params", unit="M"): [1.5, 2.0, 2.5],
    Column("a_flops", "flops", "a"): [7.0, 8.0, 9.0],
    Column("b_flops", "flops", "b"): [70.0, 80.0, 90.0],
}


class Letters:
    """Words; capitals do not matter, and words of the same letters are isomorphic."""

    name = "letters"

    def parse(self, text: str) -> tuple[str, ...]:
        if not text.strip().isalpha():
            raise UserError(f"'{text}' is no word.")
        return tuple(text.strip().lower())

    def text(self, arch: tuple[str, ...]) -> str:
        return "".join(arch)

    def key(self, arch: tuple[str, ...]) -> str:
        return "".join(sorted(arch))


def made(archs: tuple[str, ...] = ("tea", "Eat", " dog "), **more: Any) -> TabularBenchmark:
    columns = {column: np.array(numbers) for column, numbers in COLUMNS.items()}
    return TabularBenchmark.of(Rows(archs, columns, "words.csv", **more), Letters())


@pytest.fixture(params=["in memory", "from a file"])
def words(request: pytest.FixtureRequest, tmp_path: Path) -> TabularBenchmark:
    if request.param == "in memory":
        return made()
    made().write(tmp_path / "words.ezb")
    return TabularBenchmark.open(tmp_path / "words.ezb", Letters())


def test_architectures_are_written_as_their_space_does(words: TabularBenchmark) -> None:
    assert isinstance(words, Benchmark)
    assert words.archs == ["tea", "eat", "dog"]
    assert len(words) == 3
    assert (words.space_name, words.origin) == ("letters", "words.csv")


def test_columns_of_runs_and_their_means(words: TabularBenchmark) -> None:
    assert words.names[:2] == ["a_test", "a_test_5ep"] and words.names[-2:] == ["a_test_seed1", "a_test_seed2"]
    assert words.column("a_test").tolist() == [51, 60, 70.5]
    np.testing.assert_array_equal(words.column("a_test_seed2"), [52, np.nan, 71])
    with pytest.raises(DataError, match=r"no column 'a_tset'\. Did you mean 'a_test'\? Its columns: a_test,"):
        words.column("a_tset")


def test_lookups_say_whether_the_row_is_the_same_architecture(words: TabularBenchmark) -> None:
    assert words.find(" TEA") == Match(0, "tea", exact=True)
    assert words.find("eat") == Match(1, "eat", exact=True)
    assert words.find("god") == Match(2, "dog", exact=False)
    with pytest.raises(DataError, match=r"'ate' itself, and 2 rows that are isomorphic to it. .* 'tea', 'eat'"):
        words.find("ate")
    with pytest.raises(DataError, match="no row for architecture 'cat' or an isomorphic one"):
        words.find("cat")
    with pytest.raises(UserError, match="is no word"):
        words.find("c4t")


def test_accuracies_by_what_they_are(words: TabularBenchmark) -> None:
    assert words.accuracy("tea", "a") == 51
    assert words.accuracy("god", "a", "test", 20, 2) == 71
    assert words.accuracy("dog", "a", epochs=5) == 30
    assert words.accuracy("tea", split="val") == 11
    assert words.accuracy("eat", "a") == 60, "the mean is over the runs that there are"
    with pytest.raises(DataError, match="has no a_test_seed2 for 'eat'"):
        words.accuracy("eat", "a", seed=2)
    with pytest.raises(DataError, match="has no b_val for 'eat'"):
        words.accuracy("eat", "b", "val")
    with pytest.raises(
        DataError, match=r"no accuracy for dataset c, split test, seed 0\. Its accuracies: a_test_seed1, "
    ):
        words.accuracy("tea", "c", seed=0)


def test_the_dataset_has_to_be_named_where_there_are_several() -> None:
    columns = {described(name): np.array([50.0]) for name in ("x_test", "y_test")}
    benchmark = TabularBenchmark.of(Rows(["a"], columns, "t.csv"), Letters())
    with pytest.raises(UserError, match=r"has accuracies on x, y\. Name one"):
        benchmark.accuracy("a")


def test_a_table_that_names_no_epochs_means_the_full_training() -> None:
    columns = {described(name): np.array([value]) for name, value in (("x_test", 90.0), ("x_test_12ep", 50.0))}
    benchmark = TabularBenchmark.of(Rows(["a"], columns, "t.csv"), Letters())
    assert benchmark.accuracy("a", "x") == 90
    assert benchmark.accuracy("a", "x", epochs=12) == 50


def test_costs(words: TabularBenchmark) -> None:
    assert words.cost("tea") == {"params": 1.5e6, "a_flops": 7, "b_flops": 70}
    assert words.cost("tea", "b") == {"params": 1.5e6, "flops": 70}


def test_a_file_is_the_same_as_what_was_written(tmp_path: Path) -> None:
    made().write(tmp_path / "a.ezb")
    opened = TabularBenchmark.open(tmp_path / "a.ezb", Letters())
    opened.write(tmp_path / "b.ezb")
    assert (tmp_path / "a.ezb").read_bytes() == (tmp_path / "b.ezb").read_bytes()
    assert len(opened.id) == 64 and opened.columns == made().columns


def test_many_rows_over_many_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 7)
    archs = ["".join(word) for word in permutations("abcdef", 4)]
    numbers = np.arange(float(len(archs)))
    TabularBenchmark.of(Rows(archs, {Column("n"): numbers}, "t.csv"), Letters()).write(tmp_path / "a.ezb")
    opened = TabularBenchmark.open(tmp_path / "a.ezb", Letters())
    assert opened.archs == archs
    assert [opened.find(arch).row for arch in archs] == list(range(len(archs)))


def test_digests_that_collide_do_not_mix_architectures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "digest_of", lambda key: 7)
    benchmark = made()
    assert benchmark.find("god") == Match(2, "dog", exact=False)
    with pytest.raises(DataError, match="no row"):
        benchmark.find("cat")


@pytest.mark.parametrize(
    ("archs", "message"),
    [
        (("tea", "TEA", "dog"), r"Architecture 'tea' is listed twice in words.csv \(rows 1 and 2\)"),
        (("tea", "dog", "c4t"), "Row 3 of words.csv does not fit letters: 'c4t' is no word"),
    ],
)
def test_rows_that_are_repeated_or_of_another_space(archs: tuple[str, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        made(archs)


def test_keys_of_the_source_are_used_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert made(keys=["aet", "aet", "dgo"]).find("god").row == 2
    with pytest.raises(DataError, match=r"Row 2 of words\.csv has the hash 'ate', which does not match its cell"):
        made(keys=["aet", "ate", "dgo"])


def test_a_space_without_keys_finds_the_same_text() -> None:
    class Plain:
        name, parse, text = "plain", Letters.parse, Letters.text

    benchmark = TabularBenchmark.of(Rows(["tea", "dog"], {Column("n"): np.arange(2.0)}, "t.csv"), Plain())
    assert benchmark.find("DOG") == Match(1, "dog", exact=True)
    with pytest.raises(DataError, match="no row"):
        benchmark.find("god")


def test_isomorphic_cells_of_nas_bench_101() -> None:
    space = spaces["nb101"]
    cell = "conv1x1:0/conv3x3:0/maxpool3x3:12/output:23"
    twin = "conv3x3:0/conv1x1:0/maxpool3x3:12/output:13"
    rows = Rows([cell, "conv3x3:0/output:1"], {described("test_acc"): np.array([0.9, 0.8])}, "t.csv")
    benchmark = TabularBenchmark.of(rows, space)
    assert benchmark.find(twin) == Match(0, cell, exact=False)
    assert benchmark.accuracy(twin) == 0.9
    matrix, ops = space.matrix(space.parse(cell))
    official = ";".join("".join(map(str, row)) for row in matrix) + " " + ",".join(ops)
    assert benchmark.find(official) == Match(0, cell, exact=True)


def test_isomorphic_cells_of_nas_bench_201() -> None:
    """Numbers 4 and 1817 of the benchmark: one convolution each, behind a skip or before it."""
    cell = "|skip_connect~0|+|skip_connect~0|nor_conv_1x1~1|+|skip_connect~0|skip_connect~1|nor_conv_1x1~2|"
    twin = "|skip_connect~0|+|nor_conv_1x1~0|skip_connect~1|+|skip_connect~0|skip_connect~1|nor_conv_1x1~2|"
    accuracies = {described("cifar10_test"): np.array([88.2167, 88.2333])}
    both = TabularBenchmark.of(Rows([cell, twin], accuracies, "t.csv"), spaces["nb201"])
    assert (both.accuracy(cell), both.accuracy(twin)) == (88.2167, 88.2333)
    one = TabularBenchmark.of(Rows([cell], {described("cifar10_test"): np.array([88.2167])}, "t.csv"), spaces["nb201"])
    assert one.find(twin) == Match(0, cell, exact=False)
    assert one.accuracy(twin) == 88.2167


def test_the_view_as_a_table(tmp_path: Path) -> None:
    made().write(tmp_path / "words.ezb")
    table = AccuracyTable.read(tmp_path / "words.ezb")
    assert table.archs == ["tea", "eat", "dog"]
    assert table.column("a_test").tolist() == [51, 60, 70.5]
    assert table.lookup("dog", "params_M") == 2.5
    assert table.lookup("dog", "a_test_5ep") == 30
    assert sorted(table.sample(3, seed=0)) == [0, 1, 2]
    with pytest.raises(UserError, match=r"Column 'a_test_seed2' .* holds 'nan' in row 2, where a finite number"):
        table.column("a_test_seed2")
    with pytest.raises(UserError, match=r"no column 'acc'"):
        table.column("acc")


def latencies(archs: list[str], **columns: list[float]) -> Rows:
    return Rows(archs, {described(name): np.array(column) for name, column in columns.items()}, "hw.csv")


def test_latencies_join_by_the_text_alone(tmp_path: Path) -> None:
    joined = made().join(latencies(["dog", "TEA", "ate", "cat"], pixel_latency=[3, 1, 9, 9], params_M=[2.5, 1.5, 0, 0]))
    np.testing.assert_array_equal(joined.column("pixel_latency"), [1, np.nan, 3])
    assert joined.column("params_M").tolist() == [1.5, 2, 2.5]
    assert joined.notes == ["1 of 3 architectures are not in hw.csv."]
    assert joined.origin == "words.csv + hw.csv"
    assert joined.cost("dog", "a") == {"params": 2.5e6, "flops": 9, "latency": 3}
    assert "latency" not in joined.cost("eat", "a")
    joined.write(tmp_path / "a.ezb")
    assert TabularBenchmark.open(tmp_path / "a.ezb", Letters()).notes == joined.notes


def test_latencies_of_another_dataset_are_not_given() -> None:
    joined = made().join(latencies(["tea"], a_pixel_latency=[1], b_pixel_latency=[2], edge_latency=[3]))
    of_both = {"a_pixel_latency": 1, "b_pixel_latency": 2, "edge_latency": 3}
    assert {name: cost for name, cost in joined.cost("tea").items() if "latency" in name} == of_both
    assert joined.cost("tea", "b") == {"params": 1.5e6, "flops": 70, "b_pixel_latency": 2, "edge_latency": 3}


def test_tables_that_do_not_join() -> None:
    with pytest.raises(DataError, match=r"hw\.csv has no architecture of words.csv"):
        made().join(latencies(["cat"], pixel_latency=[1]))
    with pytest.raises(DataError, match="have different values in column 'params_M'"):
        made().join(latencies(["tea"], params_M=[9]))
    with pytest.raises(DataError, match=r"and hw\.csv have different units"):
        made().join(latencies(["tea"], c_test=[0.9]))


def test_a_file_of_other_arrays(tmp_path: Path) -> None:
    benchmark = made()
    for gone in ("texts", "blocks", "digests", "places", "numbers0"):
        sections = {name: array for name, array in benchmark._sections.items() if name != gone}
        file.write(tmp_path / "a.ezb", benchmark._about() | module._listed(benchmark.columns), sections)
        with pytest.raises(DataError, match="is not a usable benchmark"):
            TabularBenchmark.open(tmp_path / "a.ezb")
    short = benchmark._sections | {"numbers1": benchmark._sections["numbers1"][:2]}  # type: ignore[operator]
    file.write(tmp_path / "a.ezb", benchmark._about() | module._listed(benchmark.columns), short)
    with pytest.raises(DataError, match="column 'a_test_seed2' has another number of rows"):
        TabularBenchmark.open(tmp_path / "a.ezb")
