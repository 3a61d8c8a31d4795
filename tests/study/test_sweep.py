"""The sweep: its table holds the scores, resumes, and shares equal cells."""

from __future__ import annotations

import concurrent.futures
import csv
import json
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from epochzero import data
from epochzero.bare.__main__ import parser_of
from epochzero.engine import PlanNetwork, parse, parse_list
from epochzero.engine import score_population as really_score
from epochzero.errors import MachineError, UserError
from epochzero.executors.processes import Processes
from epochzero.registry import spaces
from epochzero.study import sweep as module
from epochzero.study import task
from epochzero.study.sweep import EVERY, GROWTH, LEAST, Chunks, SweepSettings, sweep
from epochzero.types import Score
from tests.command import CUT

NB201 = spaces["nb201"]
BATCH = data.pink((3, 8, 8), size=2)
TINY = ["--proxies", "grad_norm,synflow", "--batch-size", "2", "--input-shape", "3,8,8", "--device", "cpu"]
SAME = (
    "|none~0|+|none~0|none~1|+|skip_connect~0|none~1|nor_conv_1x1~2|",
    "|none~0|+|none~0|none~1|+|skip_connect~0|skip_connect~1|nor_conv_1x1~2|",
    "|none~0|+|none~0|none~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_1x1~2|",
)
"""one function three times, the last time with weights that nothing reaches"""


def swept(out: Path, *more: str) -> list[dict[str, str]]:
    asked = parser_of("sweep").parse_args([*TINY, *more, "--out", str(out)])
    sweep(SweepSettings(**vars(asked)), time.perf_counter())
    with out.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def drawn(count: int, seed: int = 0) -> list[str]:
    rng = Random(seed)
    return [NB201.text(NB201.sample(rng)) for _ in range(count)]


def expected(text: str, names: str = "grad_norm,synflow") -> dict[str, Score]:
    network = PlanNetwork(NB201.plan(NB201.parse(text), 10, (3, 8, 8)))
    return really_score([network], parse_list(names), BATCH, 0)[0].scores


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns the number of networks that each call of the engine scored, not only counted."""
    counts: list[int] = []

    def count(networks: Any, proxies: Any, *more: Any, **options: Any) -> Any:
        given = list(networks)
        if not all(proxy.free for proxy in proxies):
            counts.append(len(given))
        return really_score(given, proxies, *more, **options)

    monkeypatch.setattr("epochzero.engine.score.score_population", count)
    return counts


def test_the_table_holds_the_scores_in_full(tmp_path: Path) -> None:
    rows = swept(tmp_path / "a.csv", "--networks", "3")
    assert [row["arch"] for row in rows] == drawn(3)
    assert list(rows[0]) == ["arch", "grad_norm", "synflow", "reasons"]
    for row in rows:
        scores = expected(row["arch"])
        assert {name: float(row[name]) for name in scores} == {name: score.value for name, score in scores.items()}
        assert row["reasons"] == ""


def test_how_it_was_made_lies_beside_it(tmp_path: Path) -> None:
    swept(tmp_path / "a.csv", "--networks", "2")
    facts = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert facts["settings"]["seed"] == 0 and facts["settings"]["data_digest"] == BATCH.id
    assert (facts["rows"], facts["scored"], facts["proxies"]) == (2, 2, ["grad_norm", "synflow"])
    (run,) = facts["runs"]
    assert run["seconds"] > 0 and run["rows"] == 2 and run["epochzero"] and run["torch"] == torch.__version__


def test_a_table_goes_on_without_scoring_again(tmp_path: Path, asked: list[int]) -> None:
    first = swept(tmp_path / "a.csv", "--networks", "3")
    assert swept(tmp_path / "a.csv", "--networks", "5")[:3] == first
    assert swept(tmp_path / "a.csv", "--networks", "5")[3:] == swept(tmp_path / "b.csv", "--networks", "5")[3:]
    assert sum(asked) == 3 + 2 + 5
    facts = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert [run["rows"] for run in facts["runs"]] == [3, 2, 0]


def test_half_a_row_is_scored_again(tmp_path: Path, asked: list[int]) -> None:
    out = tmp_path / "a.csv"
    whole = swept(out, "--networks", "3")
    text = out.read_text(encoding="utf-8")
    out.write_text(text[: len(text) - 7], encoding="utf-8")
    assert swept(out, "--networks", "3") == whole
    assert out.read_text(encoding="utf-8") == text
    assert sum(asked) == 3 + 1


def test_cells_that_are_the_same_are_scored_once(tmp_path: Path, asked: list[int]) -> None:
    archs = tmp_path / "archs.txt"
    other = drawn(1)[0]
    archs.write_text("\n".join([SAME[0], other, *SAME[1:], ""]), encoding="utf-8")
    rows = swept(tmp_path / "a.csv", "--archs", str(archs), "--share", "--proxies", "synflow,params")
    assert sum(asked) == 2
    assert [row["scored_as"] for row in rows] == [SAME[0], other, SAME[0], SAME[0]]
    assert len({row["synflow"] for row in rows}) == 2
    for row in rows:
        assert float(row["params"]) == NB201.plan(NB201.parse(row["arch"]), 10, (3, 8, 8)).params
    assert rows[0]["params"] != rows[3]["params"]


def test_a_shared_cell_that_is_in_the_table_is_not_scored_again(tmp_path: Path, asked: list[int]) -> None:
    archs = tmp_path / "archs.txt"
    for count in (1, 3):
        archs.write_text("\n".join(SAME[:count]), encoding="utf-8")
        rows = swept(tmp_path / "a.csv", "--archs", str(archs), "--share")
    assert asked == [1]
    assert [row["arch"] for row in rows] == list(SAME)
    assert {row["synflow"] for row in rows} == {repr(expected(SAME[0])["synflow"].value)}


def test_a_whole_space(tmp_path: Path) -> None:
    space = spaces["mlp"]
    rows = swept(tmp_path / "a.csv", "--space", "mlp", "--all", "--proxies", "params", "--data", "white")
    assert [row["arch"] for row in rows] == [space.text(arch) for arch in space]


def test_no_score_is_an_empty_cell_with_a_reason(tmp_path: Path) -> None:
    archs = tmp_path / "archs.txt"
    archs.write_text(CUT, encoding="utf-8")
    (row,) = swept(tmp_path / "a.csv", "--archs", str(archs))
    scores = expected(CUT)
    assert not scores["grad_norm"].ok
    assert row["grad_norm"] == ""
    reasons = json.loads(row["reasons"])
    assert reasons == {name: [score.status, score.why] for name, score in scores.items() if not score.ok}


def test_workers_write_the_same_table(tmp_path: Path) -> None:
    alone = swept(tmp_path / "a.csv", "--networks", "4", "--proxies", "synflow")
    assert swept(tmp_path / "b.csv", "--networks", "4", "--proxies", "synflow", "--workers", "2") == alone


def test_a_worker_gets_its_chunk_in_one_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that one population of it runs while the next is merged."""
    given: list[int] = []
    scored = Processes._scored

    def noting(crew: Processes, key: Any, texts: Any) -> Any:
        given.append(len(texts))
        return scored(crew, key, texts)

    monkeypatch.setattr(Processes, "_scored", noting)
    monkeypatch.setitem(module.FIRST, "cpu", 6)
    swept(tmp_path / "a.csv", "--networks", "6", "--proxies", "synflow", "--workers", "2")
    assert sorted(given) == [0, 0, 6], "each gets ready, and one scores"


@pytest.mark.parametrize("workers", [1, 2, 12])
@pytest.mark.parametrize("each", [0.0, 0.01, 0.5, 30.0])
def test_chunks_take_a_few_seconds(workers: int, each: float) -> None:
    for count in (0, 1, LEAST, 1000, 6466):
        archs, cut = list(map(str, range(count))), []
        chunks = Chunks(archs, workers, 2, 256)
        for chunk in chunks:
            cut.append(chunk)
            chunks.took(len(chunk), each * len(chunk))
        sizes = [len(chunk) for chunk in cut]
        assert [arch for chunk in cut for arch in chunk] == archs
        assert all(size <= 256 and (size == 1 or each * size <= EVERY) for size in sizes[1:])
        assert all(after <= GROWTH * before for before, after in pairwise(sizes))
        assert workers == 1 or count < LEAST * workers or max(sizes[-workers:]) <= 2 * LEAST
        assert not each or count < 6466 or max(sizes) == max(2, min(256, int(EVERY / each)))


def test_a_killed_sweep_keeps_its_rows_and_resumes(tmp_path: Path) -> None:
    """Killed outright, with two workers, which end with it; the second run scores only what is missing."""
    out, asked = tmp_path / "a.csv", ["--networks", "40", "--proxies", "synflow", "--workers", "2"]
    command = [sys.executable, "-m", "epochzero.bare", "sweep", *TINY, *asked, "--out", str(out)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as sweeping:
        until = time.monotonic() + 60
        while not (kept := out.read_text(encoding="utf-8").count("\n") - 1 if out.exists() else 0) > 0:
            assert sweeping.poll() is None and time.monotonic() < until
            time.sleep(0.01)
        sweeping.kill()
    kept = out.read_text(encoding="utf-8").count("\n") - 1
    assert 0 < kept < 40
    rows = swept(out, *asked[:-2])
    runs = json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))["runs"]
    assert [run["rows"] for run in runs] == [40 - kept]
    assert rows == swept(tmp_path / "b.csv", *asked[:-2])


def test_what_was_scored_is_given_before_what_went_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def score(chunk: Any) -> Any:
        if chunk == ["bad"]:
            raise MachineError("no memory")
        return [(chunk, 0.0)]

    monkeypatch.setattr(module, "wait", lambda running, **_: concurrent.futures.wait(running))
    found: list[str] = []
    with pytest.raises(MachineError, match="no memory"):
        for chunk, _ in module._in_parallel(score, iter([["bad"], ["a"], ["b"], ["c"]]), 3):
            found += chunk
    assert sorted(found) == ["a", "b", "c"]


def test_a_task_remembers_how_much_room_there_was(monkeypatch: pytest.MonkeyPatch) -> None:
    budgets: list[Any] = []

    def score(networks: Any, proxies: Any, batch: Any, seed: int, memory: Any) -> Any:
        budgets.append(memory)
        return really_score(networks, proxies, batch, seed, memory=memory)

    monkeypatch.setattr("epochzero.engine.score.score_population", score)
    one, other = (task.Task(NB201, [parse("params")], BATCH) for _ in range(2))
    for own in (one, one, other):
        own.score([NB201.parse(drawn(1)[0])])
    assert budgets[0] is budgets[1] and budgets[0] is not budgets[2]


def test_shared_cells_are_counted_after_a_stop_too(tmp_path: Path) -> None:
    archs, out = tmp_path / "archs.txt", tmp_path / "a.csv"
    archs.write_text("\n".join(SAME), encoding="utf-8")
    asked = ("--archs", str(archs), "--share", "--proxies", "synflow,params")
    whole = swept(out, *asked)
    lines = out.read_text(encoding="utf-8").splitlines(keepends=True)
    out.write_text("".join(lines[:2]), encoding="utf-8")
    assert swept(out, *asked) == whole


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--seed", "1"], r"a\.csv was begun with seed 0, not 1: choose another --out"),
        (["--batch-size", "3"], r"a\.csv was begun with batch_size 2, not 3"),
        (["--data", "white"], r"a\.csv was begun with data_digest pink-"),
        (["--proxies", "synflow"], r"a\.csv holds a table with other columns"),
    ],
)
def test_a_table_of_another_kind_is_left_alone(tmp_path: Path, more: list[str], sentence: str) -> None:
    out = tmp_path / "a.csv"
    swept(out, "--networks", "1")
    before = [path.read_bytes() for path in (out, tmp_path / "a.json")]
    with pytest.raises(UserError, match=sentence):
        swept(out, "--networks", "2", *more)
    assert [path.read_bytes() for path in (out, tmp_path / "a.json")] == before


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--proxies", "naswt"], "No proxy is called 'naswt'"),
        (["--space", "nb21"], "No space is called 'nb21'"),
        (["--space", "darts", "--all", "--input-shape", "3,32,32"], "The space 'darts' cannot be listed in full"),
        (["--space", "resnet", "--share"], "The space 'resnet' has no rule for which cells are the same"),
        (["--archs", "nowhere.txt"], "There is no file nowhere.txt"),
        (["--workers", "0"], "--workers is 0"),
        (["--init", "lecum"], "lecum"),
    ],
)
def test_mistakes_are_sentences(tmp_path: Path, more: list[str], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        swept(tmp_path / "a.csv", *more)
    assert not list(tmp_path.iterdir())


def test_a_table_without_its_settings_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("arch,grad_norm,synflow,reasons\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"a\.json does not say how .*a\.csv was made"):
        swept(tmp_path / "a.csv")
    with pytest.raises(UserError, match=r"--out takes a name that ends with \.csv"):
        swept(tmp_path / "a.json")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_no_gpu_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="The device 'cuda' cannot be used here"):
        swept(tmp_path / "a.csv", "--device", "cuda")
