"""SiGeo for recommenders: scores after warming the supernet up, on clicks with planted interactions.

Random nasrec_small sub-networks of a reduced size (widths to 128, 16 rows) are trained from scratch on synthetic clicks
(recommend/data/synthetic.py; Adagrad as NASRec, one pass over a share of the training rows). Their test log loss is
ranked against sigeo and zico on four batches of validation rows, with weights inherited from a supernet that was not
trained, or for 1 % or 100 % of the same rows (schedule shortened to the level; `unscaled`: cut off). sigeo has the
weights (1, 1, 0) without warm-up and (1, 1, 1) after one, as in the paper. A correlation is positive if a better score
goes with a lower log loss. For recommenders the paper prints no such correlations, only the networks that its searches
select (Tables 1 and 5).

Zheng, Liu, Fedorov, Zhang, Chen, Wen. SiGeo: sub-one-shot NAS via information theory and geometry of loss landscape.
2023. arXiv:2311.13169
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from epochzero.data.batch import digest
from epochzero.engine import Proxy, parse
from epochzero.executors.base import ScoredBatch
from epochzero.recommend.spaces.nasrec import Choices
from epochzero.recommend.supernet.weights import RecommenderSupernet
from epochzero.recommend.training import settings as ctr
from epochzero.recommend.training.source import TEST_AUC, TEST_LOSS, TrainingSource
from epochzero.stats import kendall, spearman
from epochzero.study.task import Task
from epochzero.types import Score
from epochzero_papers.harness.base import Measurement, Quoted, Recipe, Row, Sample, Settings, Work, experiment
from epochzero_papers.sigeo.clicks import LAW, LEVELS, Place, Sizes, warmed

LOSS = "test log loss"


@dataclass(frozen=True)
class Clicks(Settings):
    """The size of the table, the share that is trained on, and the largest networks."""

    networks: int = 40
    batch_size: int = 256
    rows: int = 500_000
    share: float = 0.2
    """of the training rows, for networks and supernet alike"""
    widest: int = 128
    most_rows: int = 16

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.rows, self.share, self.batch_size, self.widest, self.most_rows)


class Warmed:
    """Scores with weights inherited from a supernet, which is warmed up for the first score."""

    candidates: Sequence[Any] | None = None

    def __init__(self, settings: Clicks, place: Place, level: float, scaled: bool) -> None:
        self.place, self.level, self.scaled = place, level, scaled
        about = sorted((asdict(settings) | {"networks": 0, "repeats": 0}).items())
        self.name = f"warm-up {level:g} {scaled} {digest(about, LAW, place.seed)[:16]}"

    @cached_property
    def supernet(self) -> RecommenderSupernet:
        return warmed(self.place, self.level, self.scaled)

    def covers(self, proxy: Proxy) -> bool:
        return True

    def score(self, task: Task, archs: Sequence[Choices]) -> ScoredBatch:
        scores = self.supernet.scores(archs, task.proxies, self.place.batch, self.place.seed)
        return [(of_network, 0.0) for of_network in scores]

    @property
    def text(self) -> str:
        return f"{100 * self.level:g} %" + ("" if self.scaled else " unscaled")

    @property
    def columns(self) -> dict[str, Proxy]:
        weights = "warm_recommender" if self.level else "zero_shot"
        proxies = {"sigeo": f"sigeo(weights={weights})", "zico": "zico(batches=4)"}
        return {f"{name}, {self.text}": parse(text) for name, text in proxies.items()}


@experiment
class SigeoRecommender(Recipe):
    """Rank correlations of scores with the log loss of trained recommenders."""

    name = "sigeo-recommender"
    source = "our own, after SiGeo (arXiv:2311.13169), Section 6.3"
    full = Clicks()
    quick = Clicks(networks=4, rows=20_000, share=1.0, widest=32)
    quoted: Sequence[Quoted] = ()

    def measure(self, work: Work) -> Measurement:
        settings: Clicks = work.settings
        with tempfile.TemporaryDirectory() as folder:
            place = Place(settings.sizes, work.seed, Path(folder))
            rng = Random(work.seed)
            archs = [place.space.sample(rng) for _ in range(settings.networks)]
            run = work.begin()
            how = ctr.Settings(batch_size=settings.batch_size)
            training = TrainingSource(place.space, place.table, how, seed=work.seed, share=settings.share)
            truth = Task(place.space, [TEST_LOSS, TEST_AUC], place.batch, sources=(training,))
            sources = [Warmed(settings, place, level, scaled) for level, scaled in LEVELS]
            scores: dict[str, list[Score]] = {LOSS: [], "test AUC": []}
            scores |= {column: [] for source in sources for column in source.columns}
            for source in sources:
                task = Task(place.space, list(source.columns.values()), place.batch, sources=(source,))
                for found in task.evaluate(archs, work.store, run, 0)[0]:
                    for column, proxy in source.columns.items():
                        scores[column].append(found[proxy.text])
            for step, arch in enumerate(archs):
                (found,), _ = truth.evaluate([arch], work.store, run, step)
                scores[LOSS].append(found[TEST_LOSS.text])
                scores["test AUC"].append(found[TEST_AUC.text])
                work.progress(step + 1, len(archs))
            floor = place.table.about["floor"]
        texts = [place.space.text(arch) for arch in archs]
        values = {name: [s.value if s.ok else None for s in column] for name, column in scores.items()}
        about = f"{settings.rows:,} synthetic rows, {settings.share:g} of the training rows; log-loss floor {floor:.4f}"
        unscored = {name: _reasons(column) for name, column in scores.items()}
        data = dict.fromkeys(values, about)
        sample = Sample("nasrec_small", texts, {name: name for name in values}, values, data, unscored)
        rows = [row for name in values if name not in (LOSS, "test AUC") for row in _rows(name, values, work.seed)]
        return Measurement(rows, {"clicks": sample})


def _reasons(column: Sequence[Score]) -> dict[str, int]:
    whys = [score.why for score in column if not score.ok]
    return {why: whys.count(why) for why in dict.fromkeys(whys)}


def _rows(name: str, values: dict[str, list[float | None]], seed: int) -> list[Row]:
    pairs = [(x, -y) for x, y in zip(values[name], values[LOSS], strict=True) if x is not None and y is not None]
    left_out = len(values[name]) - len(pairs)
    x, y = zip(*pairs, strict=True) if len(pairs) > 2 else ((), ())
    return [
        Row("clicks", name, LOSS, statistic.__name__, statistic(x, y, seed=seed), left_out)
        if pairs
        else Row("clicks", name, LOSS, statistic.__name__, None, left_out, why="too few networks have a score")
        for statistic in (spearman, kendall)
    ]
