"""SiGeo, Table 5: recommenders selected in the NASRec spaces after 0, 1 and 100 % of warm-up.

The supernet is trained on that share of the training rows (Adagrad, rate .12, cosine); regularised evolution by sigeo,
zico or, after 100 %, the one-shot fitness of NASRec; the best are trained from scratch, and figures are the test log
loss and AUC of the one with the lowest validation log loss. The paper has a population of 128, 240 generations and the
best 15, on all of Criteo, Avazu and KDD. Here the sizes are for two cores (`networks` is the population, 12 generations
of 4, the best 3, widths to 128, nasrec_small, batches of 64, embeddings of 100,000 rows in all), with the rows of the
files at hand; without any, synthetic clicks with planted interactions. Samples of thousands of rows cannot reach the
paper's figures. `python -m epochzero_papers recommender-sweep` is our full study.

Zheng, Liu, Fedorov, Zhang, Chen, Wen. SiGeo: sub-one-shot NAS via information theory and geometry of loss landscape.
2023. arXiv:2311.13169
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from epochzero.recommend.data.ingest import encode
from epochzero.recommend.data.synthetic import synthetic
from epochzero.recommend.data.table import CtrTable
from epochzero.recommend.presets import PRESETS
from epochzero.recommend.sub_one_shot import ONE_SHOT, RecommenderResult, SubOneShotSearch
from epochzero_papers.harness.base import Measurement, Quoted, Recipe, Row, Sample, Settings, Status, Work, experiment
from epochzero_papers.harness.estimates import estimate
from epochzero_papers.harness.figures import Figures, grid, quoted
from epochzero_papers.harness.files import FOLDER, File
from epochzero_papers.harness.training import folder_for
from epochzero_papers.sigeo.clicks import LAW

LOSS, AUC = "log-loss", "AUC"
CRITEO = File(("criteo_sample.csv.gz", "criteo.csv.gz", "criteo.txt", "train.txt"), "rows of Criteo")
AVAZU = File(("avazu_sample.csv.gz", "avazu.csv.gz", "avazu.csv"), "rows of Avazu")
TABLES = {"Criteo": CRITEO, "Avazu": AVAZU}
"""by the name of the table and its schema"""
SYNTHETIC = "synthetic"
PAPER: Figures = grid(
    [f"{data} {figure}" for data in ("Criteo", "Avazu", "KDD") for figure in (LOSS, AUC)],
    {
        "DLRM": (0.4436, 0.8085, 0.3814, 0.7766, 0.1523, 0.8004),
        "NASRecNet, small, 100 %": (0.4395, 0.8119, 0.3741, 0.7897, 0.1489, 0.8161),
        "NASRecNet, full, 100 %": (0.4404, 0.8109, 0.3736, 0.7905, 0.1487, 0.8170),
        "SiGeo, small, 100 %": (0.4399, 0.8115, 0.3743, 0.7894, 0.1487, 0.8171),
        "SiGeo, full, 100 %": (0.4403, 0.8110, 0.3741, 0.7898, 0.1484, 0.8187),
        "ZiCo, small, 1 %": (0.4404, 0.8109, 0.3754, 0.7876, 0.1490, 0.8164),
        "ZiCo, full, 1 %": (0.4403, 0.8100, 0.3762, 0.7860, 0.1486, 0.8174),
        "SiGeo, small, 1 %": (0.4396, 0.8117, 0.3741, 0.7898, 0.1484, 0.8185),
        "SiGeo, full, 1 %": (0.4397, 0.8116, 0.3754, 0.7876, 0.1485, 0.8178),
        "ZiCo, small, 0 %": (0.4408, 0.8105, 0.3770, 0.7849, 0.1491, 0.8156),
        "ZiCo, full, 0 %": (0.4404, 0.8108, 0.3772, 0.7845, 0.1486, 0.8177),
        "SiGeo, small, 0 %": (0.4404, 0.8109, 0.3750, 0.7882, 0.1489, 0.8165),
        "SiGeo, full, 0 %": (0.4404, 0.8108, 0.3765, 0.7856, 0.1486, 0.8177),
    },
)


@dataclass(frozen=True)
class Searching(Settings):
    """The sizes of searches and trainings."""

    networks: int = 16
    """the population"""
    batch_size: int = 64
    """four batches of validation rows are needed, and samples have some 800 rows"""
    repeats: int = 3
    """whole chains, each with a seed of its own"""
    rows: int = 20_000
    """rows of synthetic clicks, if there are no others"""
    widest: int = 128
    embedding_rows: int = 100_000
    """of all tables together; samples have fewer"""
    generations: int = 12
    top: int = 3
    tables: tuple[str, ...] = tuple(TABLES)


SMALL = Searching(networks=4, batch_size=64, repeats=1, rows=6000, widest=16, generations=1, top=1, tables=())


class WarmSearch(NamedTuple):
    """A search by a score after a warm-up."""

    label: str
    proxy: str
    level: float


CONTESTS = (
    WarmSearch("NASRecNet, small, 100 %", ONE_SHOT, 1.0),
    WarmSearch("SiGeo, small, 100 %", "sigeo", 1.0),
    *(
        WarmSearch(f"{label}, small, {100 * level:g} %", proxy, level)
        for level in (0.01, 0.0)
        for label, proxy in (("ZiCo", "zico"), ("SiGeo", "sigeo"))
    ),
)


class FoundRecommenders(Recipe):
    """An experiment whose rows are figures of recommenders that searches select."""

    full: Searching = Searching()
    quick: Searching = SMALL
    searches: Sequence[WarmSearch]
    needs = (CRITEO, AVAZU)
    unmeasured: Sequence[str] = ()

    def figures(self, result: RecommenderResult) -> Mapping[str, Sequence[float]]:
        """Returns the figures of a search: of one network, or of several."""
        return {LOSS: [result.best.test_log_loss], AUC: [result.best.test_auc]}

    def status(self, folder: str | Path = FOLDER) -> Status:
        return "ready"

    def measure(self, work: Work) -> Measurement:
        settings: Searching = work.settings
        files = {name: TABLES[name].find(work.folder) for name in settings.tables}
        held = {name: file for name, file in files.items() if file is not None}
        work.begin(tables=[file.name for file in held.values()])
        printed = {(one.x, one.y): one.value for one in self.quoted}
        rows: list[Row] = []
        samples: dict[str, Sample] = {}
        names = list(held) or [SYNTHETIC]
        with folder_for(work, "recommenders") as folder:
            for place, name in enumerate(names):
                table = _table(name, held.get(name), folder, settings)
                figures_of = self._searched(work, table, folder / name, place / len(names), len(names))
                about = f"{table.count:,} rows ({held[name].name if name in held else 'planted interactions'})."
                for column, values in figures_of.items():
                    label = f"{name} {column}"
                    samples[label] = Sample.measured("nasrec_small", values, about)
                    rows += [
                        Row(label, x, label, "as named", estimate(own), 0, printed.get((x, label)))
                        for x, own in values.items()
                    ]
        work.progress(1, 1)
        lacking = [f"{name} is left out: it needs {TABLES[name].request}." for name in files if name not in held]
        return Measurement(rows, samples, [*lacking, *self.unmeasured])

    def _searched(
        self, work: Work, table: CtrTable, folder: Path, before: float, parts: int
    ) -> dict[str, dict[str, list[float]]]:
        """Returns the numbers of all repeats by figure and search."""
        settings: Searching = work.settings
        preset = replace(
            PRESETS["reduced"],
            widest=settings.widest,
            population=settings.networks,
            tournament=min(PRESETS["reduced"].tournament, settings.networks),
            generations=settings.generations,
            top=settings.top,
            batch_size=settings.batch_size,
        )
        figures_of: dict[str, dict[str, list[float]]] = {}
        total = settings.repeats * len(self.searches)
        for done, (seed, spec) in enumerate((s, c) for s in range(settings.repeats) for c in self.searches):
            work.progress(round(before * parts * total) + done, parts * total)
            chain = SubOneShotSearch(
                table,
                proxy=spec.proxy,
                warmup=spec.level,
                preset=preset,
                max_embedding_rows=settings.embedding_rows,
                seed=work.seed + seed,
            )
            for column, values in self.figures(chain.run(folder)).items():
                figures_of.setdefault(column, {}).setdefault(spec.label, []).extend(values)
        return figures_of


def _table(name: str, file: Path | None, folder: Path, settings: Searching) -> CtrTable:
    if file is None:
        return synthetic(folder / "clicks", settings.rows, LAW)
    return encode(file, name.lower(), folder / f"{name}-rows")


@experiment
class SigeoTable5(FoundRecommenders):
    """Searches after three levels of warm-up."""

    name = "sigeo-table5"
    source = "SiGeo (arXiv:2311.13169), Tables 1 and 5 and Figure 3"
    searches = CONTESTS
    unmeasured = (
        "DLRM, the space nasrec_full and KDD are not measured here; `python -m epochzero_papers recommender-sweep "
        "train` trains DLRM on synthetic clicks.",
    )

    @property
    def quoted(self) -> Sequence[Quoted]:
        return quoted(PAPER, "as named")
