"""The script that scores networks of tables on one device: jobs in order of value, rows that survive a kill."""

from __future__ import annotations

import csv
import gzip
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import pytest

from epochzero.evaluate.leaderboard.stored import read_stored
from epochzero.spaces import nb201
from tests.test_bench_scripts import ARCHS, script, write


@pytest.fixture(scope="module")
def evidence() -> ModuleType:
    return script("evidence")


def run(evidence: ModuleType, *arguments: object) -> None:
    with patch.object(sys, "argv", ["evidence.py", *map(str, arguments)]):
        evidence.main()


def test_jobs_are_new_networks_first_and_what_is_stored_is_none(
    evidence: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grounds = [evidence.Ground(name, "nb201", 4) for name in ("main", "other")]
    monkeypatch.setattr(evidence, "GROUND", tuple(grounds))
    for name in ("main", "other"):
        write(tmp_path / f"{name}.csv", {"arch": list(ARCHS), "accuracy": list(range(len(ARCHS)))})
        (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress((tmp_path / f"{name}.csv").read_bytes()))
    stored = tmp_path / "stored.csv"
    stored.write_text(
        f"space,arch,proxy,batch,origin,value,status,why,seconds\nnb201,{ARCHS[0]},near,b,default:0,1,ok,,\n"
    )
    run(evidence, "list", tmp_path, "--scores", stored, "--out", tmp_path / "jobs.csv")
    jobs = evidence.read_list(tmp_path / "jobs.csv")
    first = [job for job in jobs if job.proxies == evidence.FIRST]
    assert jobs[: len(first)] == first
    assert [job.seed for job in first] == 3 * [0] + 4 * [1] + 3 * [0] + 4 * [1]
    assert all(job.arch != ARCHS[0] for job in first if job.seed == 0)
    assert len(jobs) == len(first) + 2 * 8


def test_rows_are_appended_resumed_and_packed(
    evidence: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    jobs, out, packed = tmp_path / "jobs.csv", tmp_path / "scores.csv", tmp_path / "scores.csv.gz"
    archs = [nb201.NB201().text(nb201.NB201().parse(arch)) for arch in ARCHS]
    lines: dict[str, list[object]] = {"space": ["nb201"] * 3, "seed": [0, 1, 0], "proxies": ["params,layers"] * 3}
    write(jobs, {**lines, "arch": [archs[2], archs[2], "no architecture"]})
    run(evidence, "score", jobs, "--out", out, "--seconds", 60)
    assert "no architecture" in capfd.readouterr().out
    whole = out.read_bytes()
    assert len(whole.splitlines()) == 1 + 4
    out.write_bytes(b"".join(whole.splitlines(keepends=True)[:3]) + b"nb201,half of a r")
    run(evidence, "score", jobs, "--out", out, "--seconds", 60)
    assert "2 of 3 jobs are left" in capfd.readouterr().out
    rows = [row[:6] for row in csv.reader(out.read_text().splitlines())]
    assert sorted(rows) == sorted(row[:6] for row in csv.reader(whole.decode().splitlines()))
    old = ["nb201", archs[2], "params#0", "b", "default:0", "7", "ok", "", ""]
    with gzip.open(packed, "wt") as file:
        csv.writer(file).writerows([next(csv.reader([whole.decode().splitlines()[0]])), old])
    run(evidence, "pack", out, "--into", packed)
    by_repeat = read_stored([packed]).of("nb201")["params"]
    assert sorted(origin for _, origin in by_repeat) == ["default:0", "default:1"]
    assert {score.value for own in by_repeat.values() for score in own.values()} == {float(rows[1][5])}
