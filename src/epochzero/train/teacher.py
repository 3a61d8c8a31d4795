"""A trained network whose logits for the same images another network learns from."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from epochzero.data.sealed import digest
from epochzero.errors import DataError, UserError
from epochzero.plan.module import PlanModule
from epochzero.registry import spaces
from epochzero.train.checkpoint import Checkpoints
from epochzero.train.image_data import Images


class Teacher(nn.Module):
    """Logits [B, classes] of a trained network, for images standardised for another training."""

    scale: Tensor
    shift: Tensor

    def __init__(self, network: PlanModule, mean: list[float], std: list[float], about: str) -> None:
        """`mean` and `std` standardised the teacher's own images. `about` identifies it and its weights."""
        super().__init__()
        self.network, self.mean, self.std, self.about = network.eval().requires_grad_(False), mean, std, about
        self.register_buffer("scale", torch.ones(1))
        self.register_buffer("shift", torch.zeros(1))

    def for_images(self, images: Images) -> Teacher:
        """Prepares for these images; UserError if the teacher was trained on other shapes or classes."""
        knows = (self.network.plan.input_shape, self.network.plan.output_shape[0])
        if knows != (images.input_shape, images.num_classes):
            raise UserError(
                f"The teacher takes images of {list(knows[0])} in {knows[1]} classes, and these are of "
                f"{list(images.input_shape)} in {images.num_classes}: choose another --teacher."
            )
        ours, theirs = images.facts, (torch.tensor(self.mean), torch.tensor(self.std))
        mean, std = torch.tensor(ours["mean"]), torch.tensor(ours["std"])
        self.scale, self.shift = ((v / theirs[1])[:, None, None] for v in (std, mean - theirs[0]))  # [C, 1, 1]
        return self

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
            logits: Tensor = self.network(x * self.scale + self.shift)
        return logits.float()


def read_teacher(folder: Path) -> Teacher:
    """The network that `epochzero train` left in a folder, from its last whole checkpoint."""
    state = Checkpoints(folder).last() if folder.is_dir() else None
    if state is None:
        raise DataError(f"The folder '{folder}' holds no trained network: give --teacher the --out of a training.")
    try:
        identity = state["identity"]
        space, arch = spaces[identity["space"]], identity["arch"]
        plan = space.plan(space.parse(arch), identity["num_classes"], tuple(identity["input_shape"]))
        network = plan.module()
        network.load_state_dict({name: state["weights"][name] for name in network.state_dict()})
        data = identity["data"]
        about = f"{space.name} {arch} {digest(state['weights'])[:16]}"
        return Teacher(network, list(data["mean"]), list(data["std"]), about)
    except (KeyError, TypeError, RuntimeError):
        raise DataError(
            f"The folder '{folder}' holds checkpoints of another program: give the --out of a training."
        ) from None
