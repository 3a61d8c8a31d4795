"""Speed of reading tables of clicks, training click models and scoring recommenders (`make bench`).

    python benchmarks/recommenders.py [--rows 5000000] [--train-rows 200000] [--networks 5] [--threads 2]

Reading: a synthetic file in Criteo's format, and the same as Parquet files, is written once and read in a separate
process, to numbers on disk, split included. The bars are 300,000 rows a second on 2 cores, and 1 GB of memory in
addition to the imports, for any number of rows.

Training: DLRM by `epochzero.recommend.training.trainer`, against the same network written by hand in plain PyTorch
(an `nn.Embedding` for each column with sparse gradients, `torch.optim.Adagrad`) on the same batches, in turns within
one run. Times are medians of the turns; compare their ratio. Memory is read from /proc, so this runs on Linux.

Scoring: networks of nasrec_small by sigeo on four batches, with the weights of a supernet for Criteo's tables: copies
of all rows, and, as in searches, without the rows that no sample names; in processor seconds.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from random import Random

import polars as pl
import torch
from torch import Tensor, nn

from epochzero.engine import parse_list, score_population
from epochzero.recommend.data.ingest import encode
from epochzero.recommend.data.schema import load_schema
from epochzero.recommend.data.synthetic import synthetic
from epochzero.recommend.data.table import CtrBatch
from epochzero.recommend.supernet.fitness import in_parts
from epochzero.recommend.supernet.weights import RecommenderSupernet
from epochzero.recommend.training.baselines import DLRM
from epochzero.recommend.training.settings import Settings
from epochzero.recommend.training.trainer import Trainer
from epochzero.registry import spaces
from epochzero_papers.sigeo.click_text import CRITEO_LIKE, write_text

ROWS_PER_SECOND, MEGABYTES = 300_000, 1000
WIDTH, BOTTOM, TOP = 16, (512, 256), (512, 256)
TURNS = 5


def megabytes(field: str) -> float:
    """Memory now (VmRSS) or at its peak (VmHWM), mapped pages of files included."""
    return int(Path("/proc/self/status").read_text(encoding="utf-8").split(f"{field}:")[1].split()[0]) / 1024


def read(source: Path, folder: Path) -> tuple[float, float, float, int]:
    """Seconds, processor seconds, peak megabytes in addition to the imports, rows."""
    import polars  # noqa: F401

    before, start, used = megabytes("VmRSS"), time.perf_counter(), time.process_time()
    table = encode(source, "criteo", folder)
    return time.perf_counter() - start, time.process_time() - used, megabytes("VmHWM") - before, table.count


def reading(rows: int, place: Path) -> bool:
    """True if reading passes both bars, from text and from a folder of Parquet files."""
    text, folder = place / "criteo.tsv", place / "criteo"
    write_text(text, rows, CRITEO_LIKE)
    names = load_schema("criteo").columns
    table = pl.scan_csv(text, separator="\t", has_header=False, with_column_names=lambda _: list(names))
    table.sink_parquet(pl.PartitionBy(folder, max_rows_per_file=1_000_000), mkdir=True)
    return all([measured("text", text, place), measured("Parquet", folder, place)])


def measured(kind: str, source: Path, place: Path) -> bool:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        seconds, used, peak, count = pool.apply(read, (source, place / "read"))
    size = sum(file.stat().st_size for file in ([source] if source.is_file() else source.rglob("*.parquet"))) / 1e6
    print(
        f"reading   {kind}, {count:,} rows, {size:,.0f} MB: {seconds:.1f} s ({used:.1f} s of all cores together), "
        f"{count / seconds:,.0f} rows/s (bar {ROWS_PER_SECOND:,}), at most {peak:.0f} MB more than at the start "
        f"(bar {MEGABYTES})"
    )
    return count / seconds >= ROWS_PER_SECOND and peak <= MEGABYTES


class PlainDLRM(nn.Module):
    """A straightforward DLRM of the same size."""

    def __init__(self, dense: int, rows: tuple[int, ...]) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(count, WIDTH, sparse=True) for count in rows)
        first, second = BOTTOM
        self.bottom = nn.Sequential(
            nn.Linear(dense, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU(), nn.Linear(second, WIDTH), nn.ReLU()
        )
        vectors = len(rows) + 1
        first, second = TOP
        self.top = nn.Sequential(
            nn.Linear(WIDTH + vectors * (vectors - 1) // 2, first),
            nn.ReLU(),
            nn.Linear(first, second),
            nn.ReLU(),
            nn.Linear(second, 1),
        )
        self.row, self.column = torch.tril_indices(vectors, vectors, -1)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        z = self.bottom(dense)
        vectors = torch.stack([z, *(table(ids[:, f]) for f, table in enumerate(self.tables))], 1)
        gram = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.row, self.column]
        logit: Tensor = self.top(torch.cat([z, gram], 1))
        return logit.squeeze(1)


def plain(dense: int, rows: tuple[int, ...]) -> Callable[[CtrBatch], None]:
    """One step of training by hand; clipping is left out, since torch does not clip sparse gradients."""
    model = PlainDLRM(dense, rows)
    adagrad = torch.optim.Adagrad(model.parameters(), lr=0.01, eps=1e-2)

    def step(batch: CtrBatch) -> None:
        adagrad.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(batch.dense, batch.ids), batch.label)
        torch.autograd.backward(loss)
        adagrad.step()

    return step


def ours(dense: int, rows: tuple[int, ...], steps: int) -> Callable[[CtrBatch], float]:
    return Trainer(DLRM(dense, rows, WIDTH, BOTTOM, TOP), rows, steps, Settings(highest=0.01)).train_on


def training(rows: int, place: Path) -> None:
    table = synthetic(place / "train", rows, CRITEO_LIKE)
    sizes = tuple(column.rows for column in load_schema("criteo").categorical)
    for name, limit in (("small tables", 1000), ("Criteo's tables, capped to 500,000 rows", 500_000)):
        tables = tuple(min(size, limit) for size in sizes)
        folded = torch.tensor(tables)
        original = table.batches("train", size=512)
        batches = [CtrBatch(b.dense, b.ids % folded, b.label) for b in islice(original, rows // 1000)]
        steps = {"plain": plain(table.num_dense, tables), "ours": ours(table.num_dense, tables, len(batches))}
        rates: dict[str, list[float]] = {"plain": [], "ours": []}
        for turn in range(TURNS + 1):
            share = batches[turn :: TURNS + 1]
            for who, step in steps.items():
                start = time.perf_counter()
                for batch in share:
                    step(batch)
                if turn:  # the first warms up
                    rates[who].append(sum(len(batch.label) for batch in share) / (time.perf_counter() - start))
        plainly, mine = (statistics.median(rates[who]) for who in ("plain", "ours"))
        print(
            f"training  {name} ({sum(tables):,} rows in all), batches of 512: plain PyTorch {plainly:,.0f} samples/s, "
            f"ours {mine:,.0f}, {mine / plainly:.2f} times as many"
        )


def scoring(networks: int, place: Path, size: int = 128) -> None:
    table = synthetic(place / "score", 20 * size, CRITEO_LIKE)
    tables = tuple(column.rows for column in load_schema("criteo").categorical)
    space = spaces["nasrec_small"].on(table.num_dense, tables).reduced(128, 16)
    batches = islice(table.batches("train", size=size), 4)
    batch = in_parts([(b.dense, b.ids % torch.tensor(tables), b.label) for b in batches])
    supernet, proxies, rng = RecommenderSupernet(space), parse_list("sigeo"), Random(0)
    spent: dict[str, list[float]] = {"all rows": [], "named rows": []}
    for arch in (space.sample(rng) for _ in range(networks + 1)):
        start = time.process_time()
        (whole,) = score_population([supernet.network(arch, batch)], proxies, batch, 0)
        middle = time.process_time()
        (named,) = supernet.scores([arch], proxies, batch)
        spent["all rows"].append(middle - start)
        spent["named rows"].append(time.process_time() - middle)
        assert abs(whole.scores["sigeo"].value / named["sigeo"].value - 1) < 1e-6
    every, few = (statistics.median(seconds[1:]) for seconds in spent.values())  # the first warms up
    print(
        f"scoring   {sum(tables):,} rows of embeddings, four batches of {size}: all rows {every:.2f} s a network, "
        f"named rows {few:.2f} s, {every / few:.1f} times as fast"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of the file that is read")
    parser.add_argument("--train-rows", type=int, default=200_000, help="rows to train on; half of them are used")
    parser.add_argument("--networks", type=int, default=5, help="networks to score")
    parser.add_argument("--threads", type=int, default=2, help="of torch")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.sparse.check_sparse_tensor_invariants.disable()  # type: ignore[no-untyped-call]  # torch warns otherwise
    with tempfile.TemporaryDirectory() as folder:
        scoring(given.networks, Path(folder))
        training(given.train_rows, Path(folder))
        kept = reading(given.rows, Path(folder)) if given.rows else True
    sys.exit(0 if kept else "under the bar")


if __name__ == "__main__":
    main()
