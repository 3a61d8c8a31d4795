"""SiGeo, Figure 7: the statistics of Figure 2 after up to a whole epoch of warm-up against the final test loss.

As Figure 2, after 0, 48, 192, 281, 375 and 469 steps: 0, 10, 40, 60, 80 and 100 % of an epoch of 60,000 digits. The
paper finds that the Fisher-Rao norm gains nothing after 40 %; it prints no figures.

Zheng, Liu, Fedorov, Zhang, Chen, Wen. SiGeo: sub-one-shot NAS via information theory and geometry of loss landscape.
2023. arXiv:2311.13169. Appendix G
"""

from __future__ import annotations

from epochzero_papers.harness.base import experiment
from epochzero_papers.sigeo.figure2 import SigeoFigure2, Study

LEVELS = (0, 48, 192, 281, 375, 469)


@experiment
class SigeoFigure7(SigeoFigure2):
    """More levels, test loss alone."""

    name = "sigeo-figure7"
    source = "SiGeo (arXiv:2311.13169), Figure 7"
    full = Study(networks=24, levels=LEVELS)
    quick = Study(networks=8, repeats=2, steps=500, levels=LEVELS)
    targets = ("final test loss",)
