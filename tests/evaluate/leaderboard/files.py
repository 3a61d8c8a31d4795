"""Small files of scores and accuracies of two spaces that do not exist."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from epochzero.store.sqlite import ScoreRow

Floats = NDArray[np.float64]
N = 40
ARCHS = {space: [f"{space}{i:02}" for i in range(N)] for space in ("alpha", "beta")}


def truth(space: str) -> Floats:
    return np.random.default_rng(len(space)).permutation(N) / 2 + 60


def values(space: str, proxy: str, seed: int = 0) -> Floats:
    """On alpha snip is exact and params noisy, on beta the other way round; ntk_cond is reversed, naswot is noise."""
    rng = np.random.default_rng([seed, *map(ord, f"{space}{proxy}")])
    true, noise = truth(space), rng.normal(size=N)
    good = {"alpha": "snip", "beta": "params"}[space] == proxy
    of = {"ntk_cond": -true + 2 * noise, "naswot": noise, "flops": true + 9 * noise}
    return of.get(proxy, true + (0 if good else 6) * noise)


def export(path: Path, scores: Mapping[tuple[str, str, str, str], Sequence[float | None]]) -> Path:
    """A file as `epochzero store --to` writes it, from scores by space, proxy, batch and origin; None without one."""
    with gzip.open(path, "wt", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(ScoreRow._fields)
        for (space, proxy, batch, origin), column in scores.items():
            for arch, value in zip(ARCHS[space], column, strict=False):
                told = ("", "degenerate", "equal inputs") if value is None else (value, "ok", "")
                writer.writerow((space, arch, proxy, batch, origin, *told, 0.1))
    return path


def sweep(path: Path, space: str, columns: Mapping[str, Sequence[object]], seed: int = 0) -> Path:
    """A table as a sweep writes it, with its JSON file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["arch", *columns])
        writer.writerows(zip(ARCHS[space], *columns.values(), strict=False))
    settings = {"space": space, "data_digest": "noise-1", "init": "default", "seed": seed, "tf32": False}
    path.with_suffix(".json").write_text(json.dumps({"settings": settings}))
    return path


def accuracies(path: Path, space: str, **more: Sequence[object]) -> Path:
    columns = {"arch": ARCHS[space], "x_test": truth(space).tolist(), **more}
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


PROXIES = ("params", "flops", "snip#2", "ntk_cond", "naswot")


def usual(folder: Path) -> list[str]:
    """Writes scores of both spaces with two seeds to `folder`/scores; returns the words of the command."""
    (folder / "scores").mkdir()
    for space in ARCHS:
        keys = [(space, proxy, f"noise-{seed}", f"default:{seed}") for proxy in PROXIES for seed in (0, 1)]
        of = {key: values(space, key[1].partition("#")[0], int(key[2][-1])).tolist() for key in keys}
        export(folder / "scores" / f"{space}.csv.gz", of)
    tables = [f"{space}={accuracies(folder / f'{space}.csv', space)}:x_test" for space in ARCHS]
    return ["--scores", str(folder / "scores"), *(word for table in tables for word in ("--table", table))]
