r"""How networks are trained: a few numbers with a name, the papers' among them.

The learning rate rises in a straight line from 0 to its peak over the warm-up, then falls from the peak p to the
end e, with t from 0 to 1 over the steps that are left:

    cosine    e + (p - e) (1 + cos(pi t)) / 2        Loshchilov, Hutter 2017. arXiv:1608.03983
    linear    p + (e - p) t

`darts` and `imagenet_mobile` are those of Liu, Simonyan, Yang (ICLR 2019, arXiv:1806.09055) as NASI (ICLR 2022, section
B.4) gives them; `nb201` is that of Dong, Yang (ICLR 2020, arXiv:2001.00326); `nb301` that of Zela et al. (ICLR 2022,
arXiv:2008.09777); `zen` is what SiGeo (section on experiment 3) and ZenNAS (ICCV 2021, arXiv:2102.01063) train their
residual networks with; `hnas` is the short one whose result HNAS (NeurIPS 2022) learns from, with the weight decay of
DARTS. `default` is our own, as are the weight and the temperature of a teacher.

What the papers do not print was read in their public codes:

    nb201              D-X-Y/AutoDL-Projects: configs/nas-benchmark/hyper-opts/200E.config
    darts              quark0/darts: cnn/train.py, cnn/utils.py
    imagenet_mobile    quark0/darts: cnn/train_imagenet.py, but for the schedule, which is NASI's
    nb301              automl/nasbench301: data_generation/configs/config_0.json; automl/Auto-PyTorch at 7856bd7b:
                       training/trainer.py (clipping, tower), components/networks/image/darts (drop path, which does
                       not rise)
    zen                idstcv/ZenNAS: scripts/Zen_NAS_cifar_params1M.sh, train_image_classification.py, DataLoader

Beware of what is left out: ZenNAS decays neither norms nor biases, has batches of 64 at a quarter of the rate, and
running statistics that move by 1 %, not 10 %, a batch; and its teacher, for which another network of ours stands where
one is given. Brightness, contrast, saturation and hue change in this order, not in a random one.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from epochzero.errors import UnknownNameError, UserError
from epochzero.registry import near_miss


@dataclass(frozen=True, slots=True)
class Recipe:
    """Stochastic gradient descent with momentum, and what is done to images, labels and network on the way."""

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
    """the largest norm of all gradients together; 0 for any"""
    label_smoothing: float = 0.0
    mixup: float = 0.0
    """alpha of the Beta distribution; 0 for none"""
    pad: int = 4
    """pixels of black around an image before one of its own size is cut out; 0 for no cutting"""
    flip: bool = True
    zoom: float = 0.0
    """the least share of an image's area that a random window of it shows, scaled to its size; 0 for no windows"""
    jitter: float = 0.0
    """how much brightness, contrast and saturation change at most; 0 for not at all"""
    hue: float = 0.0
    """how far hues are turned at most, as a share of their circle; 0 for not at all"""
    auto_augment: bool = False
    """AutoAugment's policy for CIFAR-10"""
    cutout: int = 0
    """side of the square that is blanked; 0 for none"""
    erase: float = 0.0
    """how often a random rectangle is erased"""
    auxiliary: float = 0.0
    """weight of the auxiliary tower's loss, where the space has one"""
    drop_path: float = 0.0
    """how often a path into a sum is dropped in the last epoch"""
    drop_path_steady: bool = False
    """whether that share is the same in all epochs; if not, it rises in a straight line from 0 in the first"""
    distil: float = 0.9
    """weight of a teacher's word, where there is a teacher; that of the labels is what is left of 1"""
    temperature: float = 4.0
    """what the teacher's and the network's logits are divided by for it"""

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
        if self.nesterov and not self.momentum:
            raise UserError("A recipe with nesterov needs a momentum of more than 0.")

    def rate(self, step: int, steps_an_epoch: int) -> float:
        """The learning rate of a step, counted from 0."""
        rising, total = self.warm_up * steps_an_epoch, self.epochs * steps_an_epoch
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        t = (step - rising) / max(1, total - rising)
        left = (1 + math.cos(math.pi * t)) / 2 if self.schedule == "cosine" else 1 - t
        return self.end_rate + (self.learning_rate - self.end_rate) * left

    def dropped(self, epoch: int) -> float:
        """How often paths are dropped in an epoch, counted from 0."""
        return self.drop_path if self.drop_path_steady else self.drop_path * epoch / self.epochs

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


RECIPES = {
    "default": Recipe(warm_up=1, nesterov=True),
    "darts": Recipe(
        epochs=600,
        batch_size=96,
        learning_rate=0.025,
        weight_decay=3e-4,
        clip=5,
        cutout=16,
        auxiliary=0.4,
        drop_path=0.2,
    ),
    "imagenet_mobile": Recipe(
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
    ),
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
    """A recipe by its name, with some of its numbers changed."""
    if name not in RECIPES:
        raise UnknownNameError(
            f"No recipe is called '{name}'.{near_miss(name, list(RECIPES))} Known: {', '.join(RECIPES)}."
        )
    changes = changes or {}
    known = {field.name: getattr(RECIPES[name], field.name) for field in fields(Recipe)}
    for key, value in changes.items():
        if key not in known:
            raise UserError(f"A recipe has no '{key}'.{near_miss(key, list(known))} It has {', '.join(known)}.")
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
        fitting["warm_up"] = max(0, epochs // 10)  # a recipe that is cut short keeps a short warm-up
    return replace(RECIPES[name], **fitting)
