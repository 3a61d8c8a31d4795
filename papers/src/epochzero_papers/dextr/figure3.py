"""Dextr, Figure 3: independence of the feature maps, layer by layer, of a good and a bad network.

1/c of every layer (`epochzero.analysis.features`) of the two networks of NAS-Bench-201 whose validation accuracies on
CIFAR-10 are nearest to the paper's, 89.43 and 63 %; and of one between them, since an experiment takes three. Mean over
the layers, and the layer where it is highest, as a share of the way through the network. The paper has a plot and
prints no figure; it says that the peaks are highest where the network widens, and that the good network's are higher.

Asthana, Conrad, Ortmanns, Belagiannis. Dextr: zero-shot neural architecture search with singular value decomposition
and extrinsic curvature. TMLR 2025. openreview.net/forum?id=X0uPof5DVh
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from epochzero.analysis.features import layer_independence
from epochzero.engine.space_networks import network_of
from epochzero.registry import spaces
from epochzero.types import Origin
from epochzero_papers.dextr.figure2 import opened
from epochzero_papers.harness.base import Measurement, Quoted, Recipe, Row, Sample, Settings, Work, experiment
from epochzero_papers.harness.estimates import estimate
from epochzero_papers.harness.files import CIFAR10, NB201

GOOD, BAD = 89.43, 63.0


@experiment
class DextrFigure3(Recipe):
    """Features of three networks."""

    name = "dextr-figure3"
    source = "Dextr (openreview.net/forum?id=X0uPof5DVh), Figure 3"
    full = quick = Settings(networks=3, batch_size=1)
    needs = (CIFAR10, NB201)
    quoted: Sequence[Quoted] = ()

    def measure(self, work: Work) -> Measurement:
        wanted = np.linspace(GOOD, BAD, work.settings.networks).tolist()
        chosen, batch = opened(work, "cifar10_val", work.settings.batch_size).nearest(wanted)
        space, x = spaces["nb201"], batch.part(0)[0].to(work.device)
        work.begin(networks=[text for text, _ in chosen], batch=batch.id)
        rows: list[Row] = []
        values: dict[str, list[float]] = {}
        for done, (text, accuracy) in enumerate(chosen):
            work.progress(done, len(chosen))
            network = network_of(space, space.parse(text), batch, Origin(seed=work.seed), work.device)
            name = f"validation accuracy {accuracy:.2f} %"
            values[name] = [feature.independence for feature in layer_independence(network, x)]
            peak = float(np.argmax(values[name])) / len(values[name])
            rows.append(Row("nb201", name, "1/c", "mean over layers", estimate(values[name]), 0))
            rows.append(Row("nb201", name, "highest 1/c", "share of the way", estimate([peak]), 0))
        work.progress(len(chosen), len(chosen))
        texts = [text for text, _ in chosen]
        return Measurement(rows, {"nb201": Sample.measured("nb201", values, batch.about, texts)})
