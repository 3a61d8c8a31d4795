"""What is planned of NASI: its searches, and networks that they found, trained.

Shu, Cai, Dai, Ooi, Low. NASI: label- and data-agnostic neural architecture search at initialization. ICLR 2022.
arXiv:2109.00817. Numbers of tables as in chapter 6 of Shu's thesis, which has them all.
"""

from __future__ import annotations

from epochzero.experiments.files import CIFAR10, NB101
from epochzero.experiments.planned import Planned, grid, plan

CHAPTER = "Shu, thesis (NASI, arXiv:2109.00817)"

plan(
    __name__,
    Planned(
        "thesis-table6.2",
        f"{CHAPTER}, Table 6.2",
        "NASI in the DARTS space: test errors of the networks that it selects, trained on CIFAR.",
        8,
        "Search with a fixed (FIX) and an adaptive constraint (ADA), then training on CIFAR.",
        "as named",
        grid(
            ("C10 error %", "C100 error %", "params M", "GPU hours"),
            {"NASI-FIX": (2.79, 16.12, 3.9, 0.24), "NASI-ADA": (2.90, 16.84, 3.7, 0.24)},
        ),
    ),
    Planned(
        "thesis-table6.3",
        f"{CHAPTER}, Table 6.3",
        "NASI's networks on ImageNet.",
        8,
        "The networks of Table 6.2 with 46 channels, trained on ImageNet.",
        "as named",
        grid(("top-1 error %", "top-5 error %"), {"NASI-FIX": (24.3, 7.3), "NASI-ADA": (25.0, 7.8)}),
    ),
    Planned(
        "thesis-table6.4",
        f"{CHAPTER}, Table 6.4",
        "NASI with random labels and random data: test errors of the networks that it selects.",
        6,
        "Five searches each in NAS-Bench-1Shot1 and in the DARTS space; labels uniform, data standard Gaussian.",
        "test error %",
        grid(
            ("S1", "S2", "S3", "DARTS"),
            {
                "standard": (7.3, 7.2, 7.2, 2.95),
                "random labels": (6.8, 7.0, 7.5, 2.90),
                "random data": (6.6, 7.5, 7.3, 2.97),
            },
        ),
        (CIFAR10, NB101),
    ),
    Planned(
        "thesis-table6.8",
        f"{CHAPTER}, Table 6.8",
        "NASI with other batch sizes in NAS-Bench-1Shot1.",
        6,
        "As Table 6.4 with the batch of the trace norm from 8 to 128.",
        "test error %",
        grid(
            ("b = 8", "b = 16", "b = 32", "b = 64", "b = 128"),
            {"S1": (6.8, 6.7, 6.7, 6.0, 7.0), "S2": (6.9, 7.3, 7.1, 7.2, 6.8), "S3": (7.0, 6.6, 6.7, 6.6, 7.1)},
        ),
        (CIFAR10, NB101),
    ),
    Planned(
        "thesis-figure6.2",
        f"{CHAPTER}, Figure 6.2",
        "NASI against other searches in NAS-Bench-1Shot1, by search budget.",
        6,
        "NASI with one epoch, the others with up to 20; test errors from the benchmark. No figure is printed.",
        "test error %",
        {},
        (CIFAR10, NB101),
    ),
    Planned(
        "thesis-figure6.6",
        f"{CHAPTER}, Figure 6.6",
        "What NASI's constraint and penalty do to the networks that it selects.",
        6,
        "Searches with several nu and mu, together and one at a time. No figure is printed.",
        "test error %",
        {},
        (CIFAR10, NB101),
    ),
)
