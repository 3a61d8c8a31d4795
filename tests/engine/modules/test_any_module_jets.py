"""Second derivatives along a curve: as finite differences have them, or a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import epochzero as ez
from epochzero.data import from_tensors, pink
from epochzero.engine.modules.module_network import ModuleNetwork
from tests.engine.modules.module_nets import seeded

CHANNELS, SIDE = 4, 6
STEP = 1e-4


class Calls(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Tokens(nn.Module):
    """A layer for [B, T, E], fed with the rows of the channels."""

    def __init__(self, layer: nn.Module, **given: Any) -> None:
        super().__init__()
        self.layer, self.given = layer, given

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1, 2)
        x = self.layer(x, x, x, **self.given) if isinstance(self.layer, nn.MultiheadAttention) else self.layer(x)
        return x if isinstance(x, Tensor) else x[0]


ACTIVATIONS = ["relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "mish", "softplus", "softsign"]
ACTIVATIONS += ["hardswish", "hardsigmoid", "hardtanh", "hardshrink", "softshrink", "tanhshrink", "logsigmoid"]
ACTIVATIONS += ["sigmoid", "tanh", "glu", "rrelu"]

LAYERS: dict[str, Callable[[], nn.Module]] = {
    **{name: (lambda name=name: Calls(getattr(F, name))) for name in ACTIVATIONS},  # type: ignore[misc]
    "gelu by tanh": lambda: nn.GELU("tanh"),
    "prelu": nn.PReLU,
    "silu in place": lambda: nn.Sequential(nn.Tanh(), nn.SiLU(inplace=True)),
    "softmax": lambda: nn.Softmax(1),
    "log_softmax": lambda: nn.LogSoftmax(1),
    "max_pool": lambda: nn.Sequential(nn.Tanh(), nn.MaxPool2d(2)),
    "avg_pool": lambda: nn.Sequential(nn.Tanh(), nn.AvgPool2d(2)),
    "adaptive_max_pool": lambda: nn.Sequential(nn.Tanh(), nn.AdaptiveMaxPool2d(2)),
    "adaptive_avg_pool": lambda: nn.Sequential(nn.Tanh(), nn.AdaptiveAvgPool2d(2)),
    "lp_pool": lambda: nn.LPPool2d(2, 2),
    "batch_norm": lambda: nn.BatchNorm2d(CHANNELS),
    "group_norm": lambda: nn.GroupNorm(2, CHANNELS),
    "instance_norm": lambda: nn.InstanceNorm2d(CHANNELS, affine=True),
    "layer_norm": lambda: nn.LayerNorm([CHANNELS, SIDE, SIDE]),
    "rms_norm": lambda: nn.RMSNorm([SIDE]),
    "local_response_norm": lambda: nn.LocalResponseNorm(2),
    "norms by keywords": lambda: Calls(lambda x: F.layer_norm(input=x, normalized_shape=[SIDE], eps=0.1)),
    "torch.batch_norm": lambda: Calls(lambda x: torch.batch_norm(x, None, None, None, None, True, 0.1, 1e-5, False)),
    "interpolate": lambda: Calls(lambda x: F.interpolate(x.tanh(), scale_factor=2, mode="bilinear")),
    "pixel_shuffle": lambda: nn.Sequential(nn.Tanh(), nn.PixelShuffle(2)),
    "grouped conv": lambda: nn.Sequential(nn.Tanh(), nn.Conv2d(CHANNELS, CHANNELS, 3, groups=2)),
    "attention": lambda: Calls(lambda x: F.scaled_dot_product_attention(x, x.flip(1), x)),
    "causal attention": lambda: Calls(lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True)),
    "multi head": lambda: Tokens(nn.MultiheadAttention(SIDE, 2, batch_first=True), need_weights=False),
    "multi head with weights": lambda: Tokens(nn.MultiheadAttention(SIDE, 2, batch_first=True)),
    "encoder layer": lambda: Tokens(nn.TransformerEncoderLayer(SIDE, 2, 8, 0.0, F.gelu, batch_first=True)),
    "dropout": lambda: nn.Sequential(nn.Tanh(), nn.Dropout(0.5)),
    "lstm": lambda: Tokens(nn.LSTM(SIDE, 5, 2, batch_first=True, bidirectional=True)),
    "gru": lambda: Tokens(nn.GRU(SIDE, 5, 2, batch_first=True, bidirectional=True)),
    "rnn": lambda: Tokens(nn.RNN(SIDE, 5, batch_first=True)),
}


def curve() -> tuple[Tensor, Tensor, Tensor]:
    """Values far enough from every kink of an activation for the steps taken here."""
    chance = torch.Generator().manual_seed(4)
    x, v, a = torch.randn(3, 2, CHANNELS, SIDE, SIDE, dtype=torch.float64, generator=chance)
    for kink in (-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0):
        x = torch.where((x - kink).abs() < 0.01, kink + 0.01, x)
    return x, v, a


@pytest.mark.parametrize("name", LAYERS)
def test_derivatives_along_a_curve_are_those_of_finite_differences(name: str) -> None:
    x, v, a = curve()
    network = ModuleNetwork(seeded(LAYERS[name]), from_tensors(x.float()))
    weights = {key: w.double() for key, w in network.weights.items()}

    def at(t: float) -> Tensor:
        return network.forward(x + t * v + t * t / 2 * a, weights, "train")

    with torch.no_grad():
        value, first, second = network.jet((x, v, a), weights, "train")
        before, here, after = at(-STEP), at(0.0), at(STEP)
    torch.testing.assert_close(value, here, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(first, (after - before) / (2 * STEP), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(second, (after - 2 * here + before) / STEP**2, rtol=1e-3, atol=1e-3)


def test_what_has_no_such_derivative_says_so() -> None:
    sampled = Calls(lambda x: F.grid_sample(x, x.permute(0, 2, 3, 1)[..., :2], align_corners=False).flatten(1))
    found = ez.score(sampled, "curvature,params", data=pink((3, 8, 8), size=4))
    assert found["curvature"].status == "failed"
    assert "no second forward-mode derivative" in found["curvature"].why and "grid_sampler" in found["curvature"].why
    assert found["params"].ok
