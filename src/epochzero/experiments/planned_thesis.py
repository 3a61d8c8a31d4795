"""What is planned of the thesis: ensembles (chapter 5) and HNAS (chapter 7).

Shu. Understanding and improving neural architecture search (thesis).
"""

from __future__ import annotations

from epochzero.experiments.planned import Planned, grid, plan

THESIS = "Shu, thesis"
ACCURACIES = ("C10", "C100", "IN16")

ENSEMBLES = (
    Planned(
        "thesis-table5.1",
        f"{THESIS}, Table 5.1",
        "Thesis, Table 5.1: ensembles of three networks of NAS-Bench-201.",
        8,
        "NESBS samples three networks from the posterior of a supernet; three trials.",
        "test error %",
        grid(
            ACCURACIES,
            {
                "DeepEns": (5.75, 25.27, 54.70),
                "NES-RS": (5.83, 25.58, 54.34),
                "NESBS, MC sampling": (5.76, 25.39, 53.47),
                "NESBS, SVGD-RD": (5.92, 25.00, 52.68),
            },
        ),
    ),
    Planned(
        "thesis-table5.2",
        f"{THESIS}, Table 5.2",
        "Thesis, Table 5.2: ensembles of three networks of the DARTS space on CIFAR.",
        8,
        "As Table 5.1, in the DARTS space.",
        "test error %",
        grid(
            ("C10", "C100"),
            {
                "DeepEns (DARTS)": (2.42, 14.56),
                "DeepEns (ENAS)": (2.49, 15.04),
                "NES-RS": (2.50, 15.24),
                "NESBS, MC sampling": (2.41, 14.70),
                "NESBS, SVGD-RD": (2.36, 14.55),
            },
        ),
    ),
    Planned(
        "thesis-table5.3",
        f"{THESIS}, Table 5.3",
        "Thesis, Table 5.3: the ensembles of Table 5.2 on ImageNet.",
        8,
        "Found on CIFAR-10, trained on ImageNet.",
        "as named",
        grid(
            ("top-1 error %", "top-5 error %"),
            {"NES-RS": (23.4, 6.8), "NESBS, MC sampling": (22.3, 6.2), "NESBS, SVGD-RD": (22.3, 6.1)},
        ),
    ),
    Planned(
        "thesis-table5.4",
        f"{THESIS}, Table 5.4",
        "Thesis, Table 5.4: ensembles under white-box attacks.",
        8,
        "FGSM, PGD-40, CW and AutoAttack on CIFAR; the figures are to be read from the thesis when the attacks land.",
        "test accuracy %",
        {},
    ),
    Planned(
        "thesis-table5.5",
        f"{THESIS}, Table 5.5",
        "Thesis, Table 5.5: how good the members of an ensemble are, and how unlike.",
        8,
        "Average test error (ATE) and pairwise predictive disagreement (PPD) of the ensembles of Table 5.2.",
        "%",
        grid(
            ("C10 ATE", "C10 PPD", "C100 ATE", "C100 PPD"),
            {
                "MC DropPath": (2.71, 0.39, 16.68, 2.63),
                "DeepEns": (2.69, 2.08, 16.18, 12.45),
                "NES-RS": (2.87, 2.29, 17.20, 14.14),
                "NESBS, MC sampling": (2.80, 2.57, 16.70, 13.84),
                "NESBS, SVGD-RD": (2.78, 2.27, 16.50, 13.16),
            },
        ),
    ),
    Planned(
        "thesis-table5.6",
        f"{THESIS}, Table 5.6",
        "Thesis, Table 5.6: estimated against true performance of networks and ensembles in the DARTS space.",
        8,
        "Estimates by the weights of the supernet, true ones by training, on CIFAR-10.",
        "correlation",
        grid(
            ("n = 1", "n = 3", "n = 5", "n = 7"),
            {"spearman": (0.65, 0.33, 0.40, -0.12), "pearson": (0.82, 0.45, 0.45, -0.16)},
        ),
    ),
    Planned(
        "thesis-table5.7",
        f"{THESIS}, Table 5.7",
        "Thesis, Table 5.7: post-training against best-response posterior.",
        8,
        "Ensembles of three on CIFAR-10, each member trained for 100 epochs.",
        "test error %",
        grid(
            ("best-response", "post-training"),
            {"NESBS, MC sampling": (4.74, 4.54), "NESBS, SVGD-RD": (4.81, 4.48)},
        ),
    ),
)
HNAS = (
    Planned(
        "thesis-table7.7",
        f"{THESIS}, Table 7.7",
        "Thesis, Table 7.7: HNAS in the DARTS space, trained on CIFAR.",
        8,
        "Five independent evaluations of each network.",
        "test error %",
        grid(("C10", "C100"), {"HNAS (C10)": (2.62, 17.10), "HNAS (C100)": (2.78, 16.29)}),
    ),
    Planned(
        "thesis-table7.8",
        f"{THESIS}, Table 7.8",
        "Thesis, Table 7.8: HNAS's networks on ImageNet.",
        8,
        "Found on CIFAR-100 and on ImageNet, trained on ImageNet.",
        "as named",
        grid(("top-1 error %", "top-5 error %"), {"HNAS (C100)": (24.8, 7.8), "HNAS (ImageNet)": (24.3, 7.4)}),
    ),
)
plan(__name__, *ENSEMBLES, *HNAS)
