"""What is planned of the thesis: topology (chapter 4), ensembles (chapter 5) and HNAS (chapter 7).

Shu. Understanding and improving neural architecture search (thesis).
"""

from __future__ import annotations

from epochzero.experiments.files import CIFAR10, NB201
from epochzero.experiments.planned import Planned, grid, plan

THESIS = "Shu, thesis"
ACCURACIES = ("C10", "C100", "IN16")
METRICS = ("rho grad", "rho snip", "rho grasp", "rho trace", "tau grad", "tau snip", "tau grasp", "tau trace")

TOPOLOGY = (
    Planned(
        "thesis-table4.1",
        f"{THESIS}, Table 4.1",
        "Thesis, Table 4.1: popular cells and their adaptations to the widest topology, trained.",
        8,
        "20 cells, 36 channels, batch 80, rate .025, 600 epochs, with regularisation; original / adapted.",
        "test error %",
        grid(
            ("C10", "C10 adapted", "C100", "C100 adapted", "Tiny-ImageNet", "Tiny-ImageNet adapted"),
            {
                "NASNet": (2.65, 2.80, 17.06, 16.86, 31.88, 32.05),
                "AmoebaNet": (2.76, 2.91, 17.55, 17.28, 32.22, 33.16),
                "ENAS": (2.64, 2.76, 16.67, 16.04, 30.68, 31.36),
                "DARTS": (2.67, 2.73, 16.41, 16.15, 30.58, 31.33),
                "SNAS": (2.88, 2.69, 17.78, 17.20, 32.40, 32.61),
            },
        ),
    ),
    Planned(
        "thesis-table4.2",
        f"{THESIS}, Table 4.2",
        "Thesis, Table 4.2: width and depth of popular cells.",
        9,
        "Counted on the cell, width in units of its channels c.",
        "as named",
        grid(
            ("width", "depth"),
            {"DARTS": (3.5, 3), "ENAS": (5, 2), "AmoebaNet": (4, 4), "NASNet": (5, 2), "SNAS": (4, 2)},
        ),
    ),
    Planned(
        "thesis-table7.2",
        f"{THESIS}, Table 7.2",
        "Thesis, Table 7.2: topology, trace metric and condition number of popular cells.",
        9,
        "Metric and condition number at initialisation; width and depth as in Table 4.2.",
        "as named",
        grid(
            ("width", "depth", "M_trace", "kappa"),
            {
                "NASNet": (5.0, 2, 31, 118),
                "AmoebaNet": (4.0, 4, 36, 110),
                "ENAS": (5.0, 2, 36, 98),
                "DARTS": (3.5, 3, 33, 122),
                "SNAS": (4.0, 2, 31, 126),
                "WIDE": (4.0, 2, 27, 141),
                "DEEP": (1.5, 5, 131, 209),
            },
        ),
        (CIFAR10,),
    ),
)
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
    Planned(
        "thesis-figure5.2",
        f"{THESIS}, Figure 5.2",
        "Thesis, Figure 5.2: what delta does in SVGD-RD, on a mixture of two Gaussians.",
        8,
        "Means (-1, 0) and (0, 1), covariance diag(.25, .5), 15 particles, 1,000 steps of .1. No figure is printed.",
        "positions",
        {},
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
    Planned(
        "thesis-table7.10",
        f"{THESIS}, Table 7.10",
        "Thesis, Table 7.10: the non-realizable guarantee on NAS-Bench-201, by batch size.",
        6,
        "mu and nu as tuned for Table 7.1; batch of the metric (M) or of the condition number (kappa) varied, the "
        "other 64. Test error on CIFAR-10.",
        "correlation",
        grid(
            METRICS,
            {
                "M, b = 4": (0.737, 0.741, 0.671, 0.684, 0.547, 0.550, 0.487, 0.501),
                "M, b = 8": (0.739, 0.743, 0.676, 0.689, 0.549, 0.552, 0.492, 0.506),
                "M, b = 16": (0.747, 0.748, 0.685, 0.690, 0.556, 0.556, 0.499, 0.507),
                "M, b = 32": (0.750, 0.748, 0.687, 0.690, 0.558, 0.556, 0.502, 0.506),
                "M, b = 64": (0.750, 0.748, 0.686, 0.697, 0.559, 0.556, 0.501, 0.512),
                "kappa, b = 4": (0.578, 0.585, 0.569, 0.509, 0.416, 0.421, 0.402, 0.362),
                "kappa, b = 8": (0.597, 0.603, 0.591, 0.542, 0.429, 0.433, 0.419, 0.386),
                "kappa, b = 16": (0.628, 0.633, 0.620, 0.582, 0.462, 0.455, 0.442, 0.414),
                "kappa, b = 32": (0.663, 0.666, 0.645, 0.621, 0.479, 0.481, 0.462, 0.445),
                "kappa, b = 64": (0.750, 0.748, 0.686, 0.697, 0.559, 0.556, 0.501, 0.512),
            },
        ),
        (CIFAR10, NB201),
    ),
    Planned(
        "thesis-table7.11",
        f"{THESIS}, Table 7.11",
        "Thesis, Table 7.11: the non-realizable guarantee on NAS-Bench-201, by initial channels.",
        6,
        "mu and nu as tuned for Table 7.1; channels for the metric (M) with 4 for kappa, or for kappa with 32 for M.",
        "correlation",
        grid(
            METRICS,
            {
                "M, 4": (0.744, 0.746, 0.688, 0.732, 0.550, 0.552, 0.499, 0.539),
                "M, 8": (0.750, 0.753, 0.707, 0.744, 0.556, 0.559, 0.515, 0.550),
                "M, 16": (0.753, 0.753, 0.728, 0.750, 0.558, 0.559, 0.535, 0.556),
                "M, 32": (0.755, 0.756, 0.736, 0.752, 0.560, 0.562, 0.543, 0.558),
                "kappa, 4": (0.755, 0.756, 0.736, 0.752, 0.560, 0.562, 0.543, 0.558),
                "kappa, 8": (0.720, 0.722, 0.700, 0.709, 0.529, 0.531, 0.512, 0.522),
                "kappa, 16": (0.698, 0.700, 0.677, 0.681, 0.511, 0.514, 0.492, 0.498),
                "kappa, 32": (0.686, 0.688, 0.664, 0.664, 0.501, 0.503, 0.481, 0.484),
            },
        ),
        (CIFAR10, NB201),
    ),
)
plan(__name__, *TOPOLOGY, *ENSEMBLES, *HNAS)
