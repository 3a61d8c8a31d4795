"""What is planned of SiGeo: recommenders, and networks found for CIFAR.

Zheng, Liu, Fedorov, Zhang, Chen, Wen. SiGeo: sub-one-shot NAS via information theory and geometry of loss landscape.
2023. arXiv:2311.13169
"""

from __future__ import annotations

from epochzero.experiments.planned import Planned, grid, plan

SIGEO = "SiGeo (arXiv:2311.13169)"
CTR = ("Criteo log-loss", "Criteo AUC", "Avazu log-loss", "Avazu AUC", "KDD log-loss", "KDD AUC")

plan(
    __name__,
    Planned(
        "sigeo-table4",
        f"{SIGEO}, Table 4",
        "SiGeo, Table 4: networks of 1 M parameters found for CIFAR by zero-shot proxies, and trained.",
        8,
        "Evolution in ZenNAS's residual space, population 512, 480,000 iterations, 4 batches of 64; 1,440 epochs of "
        "SGD (momentum .9, weight decay 5e-4, rate .1, cosine, batch 256) with EfficientNet-B3 as teacher; 3 runs.",
        "accuracy %",
        grid(
            ("CIFAR-10", "CIFAR-100"),
            {
                "random": (93.50, 71.10),
                "flops": (93.10, 64.70),
                "grad_norm": (92.80, 65.40),
                "synflow": (96.10, 75.90),
                "naswot": (96.00, 77.50),
                "zen": (96.2, 80.10),
                "zico": (96.96, 81.12),
                "sigeo": (97.01, 81.19),
            },
        ),
    ),
    Planned(
        "sigeo-table5",
        f"{SIGEO}, Tables 1 and 5 and Figure 3",
        "SiGeo, Table 5: recommenders found in the NASRec spaces after 0, 1 and 100 % of warm-up.",
        7,
        "The supernet is trained on so much of the data (Adagrad, rate .12, cosine); regularized evolution with a "
        "population of 128, 240 iterations, tournaments of 64, 8 children each; the best 15 are trained from scratch.",
        "as named",
        grid(
            CTR,
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
        ),
    ),
    Planned(
        "sigeo-figure4",
        f"{SIGEO}, Figure 4",
        "SiGeo, Figure 4: its parts alone, on the 15 best recommenders of each search.",
        7,
        "As Table 5 at 1 % of warm-up, with ZiCo alone, the Fisher-Rao norm alone, and SiGeo. No figure is printed.",
        "log-loss",
        {},
    ),
)
