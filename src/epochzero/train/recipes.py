r"""Training recipes: named settings of stochastic gradient descent, those of the papers among them.

The learning rate rises in a straight line from 0 to its peak over the warm-up, then falls from the peak p to the
end e, with t from 0 to 1 over the steps that are left:

    cosine    e + (p - e) (1 + cos(pi t)) / 2        Loshchilov, Hutter 2017. arXiv:1608.03983
    linear    p + (e - p) t

`darts` and `imagenet_mobile` are those of Liu, Simonyan, Yang (ICLR 2019, arXiv:1806.09055) as NASI (ICLR 2022, section
B.4) gives them; `nb201` is that of Dong, Yang (ICLR 2020, arXiv:2001.00326); `nb301` that of Zela et al. (ICLR 2022,
arXiv:2008.09777); `zen` is what SiGeo (section on experiment 3) and ZenNAS (ICCV 2021, arXiv:2102.01063) train their
residual networks with; `hnas` is the short one whose result HNAS (NeurIPS 2022) learns from, with the weight decay of
DARTS. `topology`, `nesbs`, `hnas_cifar100` and `hnas_imagenet` are those of chapters 4 (without regularisation), 5 and
7 of Shu's thesis, with what it leaves open as in `darts` and `imagenet_mobile`. `default` is our own, as are the weight
and the temperature of a teacher.

Settings that the papers do not print are from their public code:

    nb201              D-X-Y/AutoDL-Projects: configs/nas-benchmark/hyper-opts/200E.config
    darts              quark0/darts: cnn/train.py, cnn/utils.py
    imagenet_mobile    quark0/darts: cnn/train_imagenet.py, except for the schedule, which is NASI's
    nb301              automl/nasbench301: data_generation/configs/config_0.json; automl/Auto-PyTorch at 7856bd7b:
                       training/trainer.py (clipping, tower), components/networks/image/darts (drop path, which does
                       not rise)
    zen                idstcv/ZenNAS: scripts/Zen_NAS_cifar_params1M.sh, train_image_classification.py, DataLoader

Beware of the differences: ZenNAS decays neither norms nor biases, has batches of 64 at a quarter of the rate, moves
running statistics by 1 %, not 10 %, per batch, and learns from a teacher, which here is any network given with
--teacher. Brightness, contrast, saturation and hue change in this order, not in a random one.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from epochzero.errors import UserError
from epochzero.registry import check_known


@dataclass(frozen=True, slots=True)
class Recipe:
    """Settings of stochastic gradient descent with momentum, of augmentation and of regularisation."""

    epochs: int = 50
    batch_size: int = 128
    learning_rate: float = 0.1
    """the peak"""
    end_rate: float = 0.0
    warm_up: int = 0
    """epochs"""
    schedule: Literal["cosine", "linear"] = "cosine"
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    clip: float = 0.0
    """largest norm of all gradients together; 0: no clipping"""
    label_smoothing: float = 0.0
    mixup: float = 0.0
    """alpha of the Beta distribution; 0: off"""
    pad: int = 4
    """pixels of black around an image before a crop of its own size; 0: no crop"""
    flip: bool = True
    zoom: float = 0.0
    """smallest share of the area in a random resized crop; 0: off"""
    jitter: float = 0.0
    """largest relative change of brightness, contrast and saturation; 0: off"""
    hue: float = 0.0
    """largest rotation of hues, as a share of their circle; 0: off"""
    auto_augment: bool = False
    """AutoAugment's policy for CIFAR-10"""
    cutout: int = 0
    """side of the square that is blanked; 0: off"""
    erase: float = 0.0
    """probability that a random rectangle is erased"""
    auxiliary: float = 0.0
    """weight of the auxiliary tower's loss, if the space has one"""
    drop_path: float = 0.0
    """probability that a path into a sum is dropped, in the last epoch"""
    drop_path_steady: bool = False
    """use that probability in all epochs; otherwise it rises linearly from 0"""
    drop_path_falls: bool = False
    """use that probability in the first epoch; it falls linearly to 0"""
    distil: float = 0.9
    """weight of a teacher's loss; the labels' loss has 1 - distil"""
    temperature: float = 4.0
    """divides the teacher's and the network's logits in the teacher's loss"""

    def __post_init__(self) -> None:
        limits = {
            "epochs": (1, 10**6),
            "batch_size": (2, 10**6),
            "learning_rate": (0, 1e3),
            "end_rate": (0, 1e3),
            "warm_up": (0, self.epochs),
            "momentum": (0, 1),
            "weight_decay": (0, 1),
            "clip": (0, math.inf),
            "label_smoothing": (0, 1),
            "mixup": (0, 100),
            "pad": (0, 10**3),
            "zoom": (0, 1),
            "jitter": (0, 1),
            "hue": (0, 0.5),
            "cutout": (0, 10**4),
            "erase": (0, 1),
            "auxiliary": (0, 100),
            "drop_path": (0, 0.99),
            "distil": (0, 1),
            "temperature": (0.01, 100),
        }
        for name, (least, most) in limits.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise UserError(f"A recipe's {name} is {least:g} to {most:g}, not {value:g}.")
        if self.drop_path_steady and self.drop_path_falls:
            raise UserError("A recipe's drop_path is steady or falls, not both.")
        if self.nesterov and not self.momentum:
            raise UserError("A recipe with nesterov needs a momentum above 0.")

    def rate(self, step: int, steps_an_epoch: int) -> float:
        """The learning rate of a step, counted from 0."""
        rising, total = self.warm_up * steps_an_epoch, self.epochs * steps_an_epoch
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        t = (step - rising) / max(1, total - rising)
        left = (1 + math.cos(math.pi * t)) / 2 if self.schedule == "cosine" else 1 - t
        return self.end_rate + (self.learning_rate - self.end_rate) * left

    def dropped(self, epoch: int) -> float:
        """The probability of dropping a path in an epoch, counted from 0."""
        if self.drop_path_steady:
            return self.drop_path
        return self.drop_path * (self.epochs - epoch if self.drop_path_falls else epoch) / self.epochs

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


DARTS = Recipe(
    epochs=600,
    batch_size=96,
    learning_rate=0.025,
    weight_decay=3e-4,
    clip=5,
    cutout=16,
    auxiliary=0.4,
    drop_path=0.2,
)
IMAGENET_MOBILE = Recipe(
    epochs=250,
    batch_size=1024,
    learning_rate=0.5,
    warm_up=5,
    schedule="linear",
    weight_decay=3e-5,
    clip=5,
    label_smoothing=0.1,
    pad=0,
    zoom=0.08,
    jitter=0.4,
    hue=0.2,
    auxiliary=0.4,
)
RECIPES = {
    "default": Recipe(warm_up=1, nesterov=True),
    "darts": DARTS,
    "imagenet_mobile": IMAGENET_MOBILE,
    "topology": replace(DARTS, batch_size=80, cutout=0, auxiliary=0, drop_path=0),
    "nesbs": replace(DARTS, drop_path_falls=True),
    "hnas_cifar100": replace(DARTS, learning_rate=0.035, end_rate=0.001, auxiliary=0.6, drop_path=0.3),
    "hnas_imagenet": replace(IMAGENET_MOBILE, learning_rate=0.7, schedule="cosine"),
    "nb201": Recipe(epochs=200, batch_size=256, nesterov=True),
    "nb301": Recipe(
        epochs=100,
        batch_size=96,
        learning_rate=0.025,
        weight_decay=3e-4,
        clip=5,
        mixup=0.2,
        cutout=16,
        auxiliary=0.4,
        drop_path=0.2,
        drop_path_steady=True,
    ),
    "zen": Recipe(
        epochs=1440,
        batch_size=256,
        warm_up=5,
        nesterov=True,
        label_smoothing=0.1,
        mixup=0.2,
        auto_augment=True,
        erase=0.5,
    ),
    "hnas": Recipe(
        epochs=10, batch_size=576, end_rate=0.005, weight_decay=3e-4, clip=5, pad=0, flip=False, drop_path=0.2
    ),
}


def recipe_of(name: str, changes: dict[str, Any] | None = None) -> Recipe:
    """A recipe by its name, with some of its settings changed."""
    check_known(name, RECIPES, f"No recipe is called '{name}'")
    changes = changes or {}
    known = {field.name: getattr(RECIPES[name], field.name) for field in fields(Recipe)}
    for key, value in changes.items():
        check_known(key, known, f"A recipe has no '{key}'", "It has")
        if isinstance(known[key], str) and value not in ("cosine", "linear"):
            raise UserError(f"A recipe's {key} is cosine or linear, not '{value}'.")
        whole = isinstance(known[key], int)
        if not isinstance(known[key], str) and not isinstance(value, int if whole else (int, float)):
            raise UserError(f"A recipe's {key} is a {'whole ' if whole else ''}number, not '{value}'.")
    fitting: dict[str, Any] = {
        key: bool(value) if isinstance(known[key], bool) else value for key, value in changes.items()
    }
    epochs = fitting.get("epochs", RECIPES[name].epochs)
    if "warm_up" not in fitting and RECIPES[name].warm_up > epochs // 2:
        fitting["warm_up"] = max(0, epochs // 10)  # a shortened recipe keeps a short warm-up
    return replace(RECIPES[name], **fitting)
