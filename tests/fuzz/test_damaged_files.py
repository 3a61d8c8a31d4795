"""Damaged files: whatever a reader cannot use is refused in one sentence that names the file.

`make fuzz` repeats this with 200 times as many damages; the seed of a failure is in its message.
"""

from __future__ import annotations

import bz2
import hashlib
import json
import os
import pickle
import shutil
import sqlite3
import tempfile
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from io import BytesIO
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from numpy.lib.format import write_array_header_1_0

from epochzero.data import cifar, npz, sealed
from epochzero.errors import MachineError, StoreError, UserError
from epochzero.recommend.data.ingest import encode
from epochzero.recommend.data.schema import load_schema
from epochzero.recommend.data.table import open_table
from epochzero.registry import spaces
from epochzero.report.reading import reading
from epochzero.store import Evaluated, Store, add, export, salvage
from epochzero.tables import AccuracyTable, TabularBenchmark
from epochzero.tables.columns import described
from epochzero.tables.file import START
from epochzero.tables.importing import import_benchmark
from epochzero.tables.rows import Rows
from epochzero.train.image_data import load_images
from epochzero.types import Score, Setting
from tests.command import refusal
from tests.data.data_cifar import write_archive
from tests.recommend.click_files import SMALL, line, write
from tests.tables.official import CELLS, HASHED, nats_cell, pickled, run_101, runs

TIMES = int(os.environ.get("EPOCHZERO_FUZZ", "1"))
SPACE = spaces["nb201"]
ARCHS = [SPACE.text(SPACE.sample(Random(i))) for i in range(30)]
ODD: tuple[object, ...] = (None, True, -1, 0, 1.5, 2**40, 2**70, "", "x", "\0", [], [[]], {}, {"a": 1}, float("inf"))


def _ezb(path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = {described(name): rng.random(len(ARCHS)) for name in ("cifar10_test", "flops_M", "other")}
    columns[described("cifar10_valid")] = np.arange(len(ARCHS)) % 3 / 3
    TabularBenchmark.of(Rows(ARCHS, columns, "fuzz.csv"), SPACE).write(path)


def _read_ezb(path: Path) -> None:
    benchmark = TabularBenchmark.open(path)
    assert len(benchmark.archs) == len(benchmark)
    for name in benchmark.names:
        benchmark.column(name)
    for arch in ARCHS[:4]:
        for look_up in (benchmark.accuracy, benchmark.cost):
            with suppress(UserError):
                look_up(arch)
    AccuracyTable.read(path)


def _store(path: Path) -> None:
    setting = Setting("nb201", "batch", "fresh")
    good, bad = Score(1.5, "ok", ""), Score(float("nan"), "failed", "no value")
    with Store.open(path) as store:
        for kind in ("search", "winner"):
            run = store.begin_run(kind, {"space": "nb201", "seed": 1}, {"host": "here", "torch": "2"})
            store.begin_run(kind, {"space": "nb201", "seed": 1}, {})
            scores = [{"dextr": (good, 0.1), "snip": (bad, 0.2)} for _ in ARCHS]
            run.record(setting, [Evaluated(i, *pair) for i, pair in enumerate(zip(ARCHS, scores, strict=True))])
            run.save({"generation": [1, 2, 3]})
            run.finish({"best": ARCHS[0], "values": [1, 2]})


def _read_store(path: Path) -> None:
    with tempfile.TemporaryDirectory() as saved, suppress(StoreError):
        salvage(path, Path(saved) / "saved.db")
    with Store.open(path) as store:
        list(store.all_scores())
        export(store, path.with_suffix(".csv"))
        for run in store.runs():
            run.history(), run.so_far(), run.saved(), run.state
    with reading(path) as reader:
        run = reader.chosen()
        list(reader.rows(run)), reader.version()


def _npz(path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (12, 4, 4, 3), np.uint8), np.arange(12) % 3
    np.savez(path, x_train=x, y_train=y, x_test=x[:4], y_test=y[:4])


def _npz_small(path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez_compressed(path, x=rng.random((12, 4, 4)).astype(np.float32), y=np.arange(12) % 3)


def _read_npz(path: Path) -> None:
    with suppress(UserError):
        npz.read(path)
    load_images(path)


def _scores(path: Path) -> None:
    with Store.open(":memory:") as store:
        run = store.begin_run("search", {}, {})
        score = {"dextr": (Score(0.25, "ok", ""), 0.1)}
        run.record(Setting("nb201", "batch", "fresh"), [Evaluated(i, arch, score) for i, arch in enumerate(ARCHS)])
        export(store, path)


def _read_scores(path: Path) -> None:
    with Store.open(":memory:") as store, suppress(UserError):
        add(store, path)
    table = AccuracyTable.read(path)
    for name in table.columns[:1]:
        table.column(name)


def _checkpoint(path: Path) -> None:
    state = {"weights": {"a": torch.arange(60.0).reshape(6, 10), "n": torch.tensor(3)}, "epoch": 3, "x": [1.5, "t"]}
    sealed.write(path, {**state, "more": [{"b": list(range(40))}]})


def _state_dict(path: Path) -> None:
    torch.save({"a": torch.ones(6, 10), "b": torch.arange(9)}, path, _use_new_zipfile_serialization=False)


def _nb201(path: Path) -> None:
    """A file whose pickle is mostly one long list, with the places of its memo as numbers of four bytes."""
    infos = {i: {"less": runs(cell, 2, 50.0), "full": runs(cell, 3, 60.0)} for i, cell in enumerate(CELLS)}
    content = {"meta_archs": list(CELLS), "arch2infos": infos, "list": [[str(i)] for i in range(300)]}
    torch.save(content, path, _use_new_zipfile_serialization=path.name.startswith("zipped"))


def _nats(path: Path) -> None:
    infos = {i: nats_cell(i, cell) for i, cell in enumerate(CELLS)}
    path.write_bytes(bz2.compress(pickled({"meta_archs": list(CELLS), "arch2infos": infos})))


def _transnas(path: Path) -> None:
    one = {"total_epochs": 2, "metrics": {"valid_top1": [1.0, 2.0]}, "model_info": {"model_params": 3.0}}
    data = {"micro": {"64-41414-1_02_333": {"class_object": one}, "64-41414-0_00_333": {"class_object": one}}}
    about = {"metrics_dict": {"class_object": ["valid_top1"]}, "info_names": ["model_params"]}
    torch.save({**about, "task_list": ["class_object"], "data": data}, path)


def _nb101(path: Path) -> None:
    path.write_bytes(b"".join(run_101(digest, 108, 0.9, 0.8, 100.0 + i) for digest in HASHED for i in range(3)))


def _read_official(path: Path) -> None:
    name = "transnas_micro" if "trans" in path.name else "nb101" if path.suffix == ".tfrecord" else "nb201"
    import_benchmark(path, spaces[name])


def _cifar(path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = {b"data": rng.integers(0, 256, (3, 3072), np.uint8), b"fine_labels": [1, 2, 99]}
    write_archive(path, "cifar-100-python", {"train": pickle.dumps(rows, 3)})


def _clicks(path: Path) -> None:
    write(path, [line(row) for row in range(60)])


def _read_clicks(path: Path) -> None:
    table = encode(path, SMALL, path.with_suffix(""))
    assert sum(len(batch.label) for batch in table.batches("train", "val", "test", "other", size=16)) == table.count


def _table(path: Path) -> None:
    """One of the files of a table in numbers."""
    source = write(path.parents[1] / "clicks.csv", [line(row) for row in range(60)])
    encode(source, SMALL, path.parent)


def _read_table(path: Path) -> None:
    table = open_table(path.parent).capped([9, 9, 9])
    assert sum(len(batch.label) for batch in table.batches("train", "val", "test", "other", size=16)) == table.count
    assert len(table.encoding.codes["city"]) <= 100


def _schema(path: Path) -> None:
    path.write_text(json.dumps({k: v for k, v in SMALL.json().items() if k != "name"}))


MEMORY = 32 << 20
"""bytes that reading any of these small files may take"""
MILD = {"dense": 5, "ids": 5, "part": 5, "schema.json": 5, "table": 5}
"""of 120 damages, how many have to be noticed at least in files where most are other numbers"""
FILES: dict[str, tuple[Callable[[Path], None], Callable[[Path], object]]] = {
    "table.ezb": (_ezb, _read_ezb),
    "runs.db": (_store, _read_store),
    "images.npz": (_npz, _read_npz),
    "small.npz": (_npz_small, _read_npz),
    "scores.csv": (_scores, _read_scores),
    "scores.csv.gz": (_scores, _read_scores),
    "scores.parquet": (_scores, _read_scores),
    "epoch.pt": (_checkpoint, sealed.read),
    "old.pt": (_state_dict, sealed.read),
    "nb201.pth": (_nb201, _read_official),
    "zipped_nb201.pth": (_nb201, _read_official),
    "nats.pickle.pbz2": (_nats, _read_official),
    "transnas.pth": (_transnas, _read_official),
    "nb101.tfrecord": (_nb101, _read_official),
    "cifar.tar.gz": (_cifar, cifar.read),
    "clicks.csv": (_clicks, _read_clicks),
    "schema.json": (_schema, load_schema),
    **{f"table/{name}": (_table, _read_table) for name in ("meta.json", "encoding.json", "ids", "part", "dense")},
}


def _bytes_damaged(content: bytes, rng: Random) -> bytes:
    """Flipped bits, other bytes, a part that is missing, doubled or zero, or an end that is cut off."""
    made = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(made)) if rng.random() < 0.7 else rng.choice((0, len(made) - 400)) + rng.randrange(400)
        at = min(max(at, 0), len(made) - 1)
        length = rng.choice((1, 2, 4, 40))
        way = rng.randrange(6)
        if way == 0:
            made[at] ^= 1 << rng.randrange(8)
        elif way == 1:
            made[at : at + length] = rng.randbytes(len(made[at : at + length]))
        elif way == 2:
            del made[at : at + length]
        elif way == 3:
            made[at:at] = made[at : at + length]
        elif way == 4:
            made[at : at + length] = bytes(len(made[at : at + length]))
        elif rng.random() < 0.2:
            del made[at:]
        made = made or bytearray(b"\0")
    return bytes(made)


def _json_damaged(value: object, rng: Random) -> object:
    """The same value with one odd, missing or changed part."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.2:
            return {other: value[other] for other in value if other != key}
        return {**value, key: _json_damaged(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        return [*value[:at], _json_damaged(value[at], rng), *value[at + 1 :]]
    if type(value) is int and rng.random() < 0.5:
        return value + rng.choice((-64, -1, 1, 64))
    return rng.choice(ODD)


def _signed(content: bytes, rng: Random) -> bytes:
    """A benchmark file that was changed by somebody who knows its checksums."""
    length = int.from_bytes(content[8:16], "little")
    header, body = json.loads(content[START : START + length]), bytearray(content[START + length :])
    if rng.random() < 0.5:
        section = rng.choice(header["sections"])
        at, end = section["at"], section["at"] + -(-section["bytes"] // 64) * 64
        body[at:end] = _bytes_damaged(bytes(body[at:end]), rng)[: end - at].ljust(end - at, b"\0")
        section["sha256"] = hashlib.sha256(body[at:end]).hexdigest()
    else:
        header = _json_damaged(header, rng)
    text = json.dumps(header).encode()
    text = text.ljust(-(-(START + len(text)) // 64) * 64 - START)
    return content[:8] + len(text).to_bytes(8, "little") + hashlib.sha256(text).digest() + text + body


TEXTS = [("runs", name) for name in ("kind", "settings", "manifest", "resumed", "result")]
TEXTS += [("states", "state"), ("settings", "space"), ("proxies", "name"), ("scores", "arch"), ("scores", "why")]


def _cell_damaged(path: Path, rng: Random) -> None:
    """One text of a store that is no longer what was written, in a database that is whole."""
    table, column = rng.choice(TEXTS)
    with closing(sqlite3.connect(path)) as db, db:
        db.text_factory = bytes
        old = db.execute(f"SELECT {column} FROM {table} LIMIT 1").fetchone()[0]
        new = _bytes_damaged(old or b"x", rng) if rng.random() < 0.7 else json.dumps(rng.choice(ODD)).encode()
        cast = "CAST(? AS TEXT)" if rng.random() < 0.8 else "?"
        with suppress(sqlite3.IntegrityError):
            db.execute(f"UPDATE OR IGNORE {table} SET {column} = {cast} WHERE {column} = CAST(? AS TEXT)", (new, old))


def _damaged(path: Path, content: bytes, rng: Random) -> None:
    for beside in path.parent.glob(f"{path.name}-*"):
        beside.unlink()
    if path.suffix == ".ezb" and rng.random() < 0.7:
        path.write_bytes(_signed(content, rng))
        return
    cell = path.suffix == ".db" and rng.random() < 0.5
    path.write_bytes(content if cell else _bytes_damaged(content, rng))
    if cell:
        _cell_damaged(path, rng)


def test_a_declared_size_is_checked_before_memory_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "images.npz"
    huge = BytesIO()
    write_array_header_1_0(huge, {"descr": "|u1", "fortran_order": False, "shape": (10**9, 4, 4, 3)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x_train.npy", huge.getvalue() + bytes(1000))
    tracemalloc.start()
    with pytest.raises(UserError, match=r"x_train\.npy has another size than its header says"):
        load_images(path)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


@pytest.fixture
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    path: Path = tmp_path / request.param
    FILES[request.param][0](path)
    yield path
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("made", FILES, indirect=True)
@pytest.mark.filterwarnings("ignore")
def test_damage_is_refused_in_one_sentence(made: Path, tmp_path: Path) -> None:
    content, read = made.read_bytes(), FILES[str(made.relative_to(tmp_path))][1]
    read(made)
    refused = 0
    tracemalloc.start()
    for seed in range(120 * TIMES):
        _damaged(made, content, Random(seed))
        tracemalloc.reset_peak()
        begin = time.process_time()
        try:
            read(made)
        except (UserError, MachineError) as error:
            refused += 1
            named = any(name in str(error) for name in (made.stem, str(made.parent), "The column '"))
            assert named and len(str(error)) < 1000, (seed, error)
        except Exception as error:
            raise AssertionError(f"Damage {seed} of {made.name}: {error!r}") from error
        assert time.process_time() - begin < 1, seed
        assert tracemalloc.get_traced_memory()[1] < MEMORY, seed
    tracemalloc.stop()
    assert refused > MILD.get(made.name, 25) * TIMES


def test_a_command_ends_with_2(tmp_path: Path) -> None:
    store, table = tmp_path / "runs.db", tmp_path / "table.ezb"
    _store(store)
    _ezb(table)
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("UPDATE runs SET manifest = '{'")
    table.write_bytes(table.read_bytes()[:-1])
    for arguments in (("store", store), ("report", store), ("data", "show", table)):
        assert f"{arguments[-1]}" in refusal(*arguments)
