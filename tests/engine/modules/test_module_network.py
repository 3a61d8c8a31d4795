"""Anybody's `nn.Module`: scored like the same network written otherwise, left as it was, and never a traceback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import epochzero as ez
from epochzero import data
from epochzero.data import Batch
from epochzero.engine import parse
from epochzero.engine.memory import peak_bytes
from epochzero.engine.modules.module_network import ModuleNetwork
from epochzero.errors import UserError
from epochzero.registry import proxies
from epochzero.testing.proxies import close
from epochzero.types import Score
from tests.engine.modules.module_nets import (
    CLASSES,
    Functional,
    Indexing,
    Modular,
    Raises,
    Residual,
    Returns,
    Separable,
    Smooth,
    Weightless,
    dropping,
    seeded,
)

ALL = sorted(proxies)
FIRST = ["curvature", "dextr", "fisher", "flops", "fmi", "grad_norm", "grasp", "jacov", "l2_norm", "naswot"]
FIRST += ["params", "plain", "snip", "synflow", "zico"]
"""these ask for nothing special, such as blocks or many samples"""
OWN_WEIGHTS = [name for name in ALL if not any(need.run.init for need in parse(name).needs)]
"""these read the module's weights; others draw new ones, by their names"""
WITH_LABELS = [name for name in ALL if parse(name).needs_labels]
OF_BATCHES = {"lswag", "zico"}
"""these fail for want of a second batch first"""


@pytest.fixture(scope="module")
def batch() -> Batch:
    return data.pink((3, 16, 16), CLASSES, size=8)


def scored(module: nn.Module, asked: list[str], batch: Batch, **given: Any) -> dict[str, Score]:
    """Scores of a module, which is checked to be just as it was before."""
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    traits = [(part.training, len(part._forward_hooks), len(part._forward_pre_hooks)) for part in module.modules()]
    trained = [(p.requires_grad, p.grad) for p in module.parameters()]
    chance = torch.random.get_rng_state()
    try:
        return ez.score(module, asked, data=batch, **given)
    finally:
        assert torch.equal(torch.random.get_rng_state(), chance)
        assert traits == [
            (part.training, len(part._forward_hooks), len(part._forward_pre_hooks)) for part in module.modules()
        ]
        assert trained == [(p.requires_grad, p.grad) for p in module.parameters()]
        assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
        assert torch.is_grad_enabled()


def alike(one: dict[str, Score], other: dict[str, Score], tolerance: float = 1e-4) -> list[str]:
    """The proxies that tell the two apart."""
    return [f"{name}: {one[name]} {other[name]}" for name in one if not close(one[name], other[name], tolerance)]


# The same network written otherwise


def test_a_functional_rewrite_scores_like_the_modular_network(batch: Batch) -> None:
    modular = seeded(Modular)
    assert isinstance(modular, Modular)
    assert alike(scored(modular, OWN_WEIGHTS, batch), scored(Functional(modular), OWN_WEIGHTS, batch)) == []


def test_steps_in_place_score_like_steps_that_are_not(batch: Batch) -> None:
    tidy, in_place = seeded(lambda: Residual(False)), seeded(Residual)
    assert alike(scored(tidy, ALL, batch), scored(in_place, ALL, batch), 1e-5) == []
    x = batch.part(0)[0].clone()
    assert torch.equal(tidy(x), in_place(x))


def test_an_output_is_picked(batch: Batch) -> None:
    plain = scored(seeded(Modular), ALL, batch)
    pairs: list[tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]] = [
        (lambda logits: (logits, logits.sum()), lambda both: both[0]),
        (lambda logits: {"logits": logits, "loss": None}, lambda found: found["logits"]),
    ]
    for wrap, output in pairs:
        wrapped = seeded(lambda wrap=wrap: Returns(wrap))  # type: ignore[misc]
        assert alike(plain, scored(wrapped, ALL, batch, output=output), 1e-6) == []


def test_frozen_parameters_are_layers_like_others(batch: Batch) -> None:
    """Frozen parameters do not count as trainable, and are scored like others."""
    free, frozen = seeded(Modular), seeded(Modular)
    for name, parameter in frozen.named_parameters():
        parameter.requires_grad_(not name.startswith("conv1"))
    first, second = scored(free, ALL, batch), scored(frozen, ALL, batch)
    assert first["params"].value - second["params"].value == 8 * 3 * 9 + 8
    kept = [name for name in FIRST if name != "params"]
    assert alike({name: first[name] for name in kept}, second, 1e-5) == []
    for name in ("snip", "synflow", "zico"):
        assert close(scored(frozen, [name], batch)[name], second[name]), "whoever else asks does not matter"


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_precision_of_the_module_does_not_matter(batch: Batch, dtype: torch.dtype) -> None:
    """A pass runs in the precision that it asks for; weights that bfloat16 holds exactly score the same."""
    rounded = seeded(Modular).bfloat16()
    assert alike(scored(seeded(Modular).bfloat16().float(), ALL, batch), scored(rounded.to(dtype), ALL, batch)) == []


def test_shared_weights_count_once(batch: Batch) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Conv2d(3, 3, 3, padding=1)
            self.b = self.a
            self.head = nn.Linear(3, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.head(torch.relu(self.b(torch.relu(self.a(x)))).mean((2, 3)))
            return logits

    module = seeded(Tied)
    found = scored(module, ["params", "l2_norm", "flops"], batch)
    conv, head = module.get_parameter("a.weight"), module.get_parameter("head.weight")
    assert found["params"].value == 3 * 3 * 9 + 3 + 3 * CLASSES + CLASSES
    assert found["l2_norm"].value == pytest.approx((conv.norm() + head.norm()).item(), rel=1e-5)
    assert found["flops"].value == 2 * 3 * 3 * 9 * 256 + 3 * CLASSES


# Kinds of networks


@pytest.mark.parametrize("make", [Residual, Separable, Indexing])
def test_every_proxy_scores_an_ordinary_network(make: Callable[[], nn.Module], batch: Batch) -> None:
    found = scored(seeded(make), ALL, batch)
    assert {name: found[name].why for name in FIRST if not found[name].ok} == {}
    assert all(score.ok or score.why for score in found.values())


def test_separable_convolutions_are_counted_by_hand(batch: Batch) -> None:
    module = seeded(Separable)
    found = scored(module, ["params", "flops", "l2_norm"], batch)
    macs = 8 * 3 * 9 + 8 * 9 + 12 * 8 + 12 * 4 * 9  # for each of the 8x8 places
    assert found["flops"].value == 64 * macs + 12 * CLASSES
    assert found["params"].value == sum(p.numel() for p in module.parameters())
    layers = [module.get_parameter(f"{n}.weight") for n in ("stem", "depthwise", "pointwise", "grouped", "head")]
    assert found["l2_norm"].value == pytest.approx(sum(w.norm().item() for w in layers), rel=1e-5)


def test_dropout_is_the_same_each_time(batch: Batch) -> None:
    module = seeded(dropping)
    first = scored(module, ALL, batch)
    torch.rand(7)
    assert scored(module, ALL, batch) == first
    other = scored(module, ["snip"], batch, seed=1)
    assert other["snip"] != first["snip"], "another seed drops other units"


@pytest.mark.parametrize("training", [True, False])
def test_norms_remember_nothing_and_the_mode_does_not_matter(batch: Batch, training: bool) -> None:
    module = seeded(Residual).train(training)
    module.get_submodule("norm2").train(not training)
    found = scored(module, ALL, batch)
    assert module.get_buffer("norm1.num_batches_tracked").item() == 0
    assert module.get_buffer("norm1.running_mean").abs().sum() == 0
    assert alike(scored(seeded(Residual), ALL, batch), found, 1e-6) == []


@pytest.mark.parametrize(
    ("module", "proxy", "why"),
    [
        (Smooth(), "naswot", "no ReLU"),
        (Smooth(), "fmi", "no layer has an output with channels"),
        (Weightless(), "grad_norm", "no conv or linear layer"),
        (Weightless(), "synflow", "no conv or linear layer"),
        (Weightless(), "l2_norm", "no conv or linear layer"),
        (Weightless(), "fisher", "conv or linear layer"),
    ],
)
def test_a_proxy_that_does_not_apply_says_why(module: nn.Module, proxy: str, why: str, batch: Batch) -> None:
    found = scored(module, [proxy, "params", "jacov"], batch)
    assert found[proxy].status == "degenerate"
    assert why in found[proxy].why
    assert found["params"].ok
    assert found["jacov"].ok


def test_a_network_without_weights_never_gives_a_traceback(batch: Batch) -> None:
    for name, score in scored(Weightless(), ALL, batch).items():
        assert score.ok or score.why, name


# Data


def test_without_labels_only_those_who_need_them_fail() -> None:
    x = data.pink((3, 16, 16), CLASSES, size=16).part(0)[0]
    found = scored(seeded(Modular), ALL, data.from_tensors(x))
    assert {name for name in WITH_LABELS if found[name].status != "failed"} == set()
    assert all("needs labels" in found[name].why for name in WITH_LABELS if name not in OF_BATCHES)
    assert found["naswot"].ok and found["jacov"].ok and found["synflow"].ok


def test_labels_that_the_network_has_no_output_for(batch: Batch) -> None:
    x = batch.part(0)[0]
    found = scored(seeded(Modular), ["snip", "naswot"], data.from_tensors(x, torch.full((8,), 12), num_classes=13))
    assert found["snip"].status == "failed"
    assert "10 outputs" in found["snip"].why and "12" in found["snip"].why
    assert found["naswot"].ok


def test_samples_that_the_network_does_not_take() -> None:
    found = scored(seeded(Modular), ALL, data.pink((4, 16, 16), CLASSES, size=4))
    for name in set(FIRST) - {"params"}:
        assert found[name].status == "failed", name
        assert "channel" in found[name].why, name
    assert found["params"].ok


# Failures


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("out of luck\nand more"),
        ZeroDivisionError("out of luck"),
        AssertionError("out of luck"),
        KeyError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_forward_run_that_raises_fails_the_score_and_leaves_no_trace(error: Exception, batch: Batch) -> None:
    module = seeded(lambda: Raises(error))
    found = scored(module, ALL, batch)
    for name in set(FIRST) - {"params"}:
        assert found[name].status == "failed", name
        assert type(error).__name__ in found[name].why
        assert ("out of luck" in found[name].why) == bool(str(error))
        assert "\n" not in found[name].why
    assert found["params"].ok


@pytest.mark.parametrize(
    ("wrap", "why"),
    [
        (lambda logits: (logits, logits), "the module returns tuple, not a tensor"),
        (lambda logits: {"a": logits, "b": logits}, "the module returns dict, not a tensor"),
        (lambda logits: None, "the module returns NoneType, not a tensor"),
        (lambda logits: logits.sum(), "and is []"),
        (lambda logits: logits[:1], "and is [1, 10]"),
        (lambda logits: logits.argmax(1), "and is [8]"),
    ],
)
def test_an_output_that_is_no_table_of_logits(wrap: Callable[[Tensor], Any], why: str, batch: Batch) -> None:
    found = scored(seeded(lambda: Returns(wrap)), ALL, batch)
    for name in ("snip", "zico", "jacov", "naswot", "grasp", "fisher"):
        assert found[name].status == "failed"
        assert why in found[name].why
    assert found["curvature"].status == "failed"
    assert found["params"].ok


def test_an_output_of_whole_numbers(batch: Batch) -> None:
    found = scored(seeded(lambda: Returns(lambda logits: logits.round().long())), ALL, batch)
    for name in ("snip", "jacov", "curvature"):
        assert found[name].status != "ok"
        assert found[name].why


def test_a_network_that_looks_at_its_values_is_counted_on_a_sample(batch: Batch) -> None:
    def look(logits: Tensor) -> Tensor:
        return logits if logits.detach().sum().item() > 1e9 else 2 * logits

    module = seeded(lambda: Returns(look))
    plain = seeded(lambda: Returns(lambda logits: 2 * logits))
    for proxy in ("flops", "params", "naswot", "snip"):
        assert scored(module, [proxy], batch)[proxy] == scored(plain, [proxy], batch)[proxy]
    assert peak_bytes(ModuleNetwork(module, batch), batch) == peak_bytes(ModuleNetwork(plain, batch), batch)


class Backwards(torch.autograd.Function):
    """The gradient of `Doubled`, which has none itself."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor) -> Tensor:
        return 2 * gradient

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise NotImplementedError("no second derivative here")


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return Backwards.apply(*gradients)  # type: ignore[no-untyped-call]


def test_without_second_derivatives_the_first_still_count(batch: Batch) -> None:
    module = seeded(lambda: Returns(Doubled.apply))
    found = scored(module, ["grasp", "snip", "curvature", "naswot"], batch)
    assert found["grasp"].status == "failed" and "no second derivative here" in found["grasp"].why
    assert found["curvature"].status == "failed" and found["curvature"].why
    assert found["snip"].ok and found["naswot"].ok
    assert found["snip"] == scored(module, ["snip"], batch)["snip"]


def test_a_layer_output_overwritten_by_a_method_fails_fisher_alone(batch: Batch) -> None:
    class Overwriting(Modular):
        def forward(self, x: Tensor) -> Tensor:
            x = self.norm1(self.conv1(x).mul_(2.0))
            x = self.relu(self.norm2(self.conv2(x)))
            logits: Tensor = self.head(self.flat(self.pool(x)))
            return logits

    found = scored(seeded(Overwriting), ["fisher", "snip", "jacov"], batch)
    assert found["fisher"].status == "failed"
    assert "changed in place" in found["fisher"].why
    assert found["snip"].ok and found["jacov"].ok


def test_a_module_that_has_not_seen_data_yet(batch: Batch) -> None:
    lazy = nn.Sequential(nn.Flatten(), nn.LazyLinear(CLASSES))
    with pytest.raises(UserError, match=r"'1.weight' has no shape yet: run the module once"):
        ez.score(lazy, "params", data=batch)


def test_a_compiled_module(batch: Batch) -> None:
    with pytest.warns(DeprecationWarning, match="deprecated"):
        compiled = torch.jit.script(nn.Linear(3, CLASSES))
    with pytest.raises(UserError, match=r"compiled by torch.jit cannot be watched"):
        ez.score(compiled, "params", data=batch)


def test_what_is_no_network() -> None:
    with pytest.raises(UserError, match="needs its space"):
        ez.score(("none",) * 6, "params")
    with pytest.raises(UserError, match="needs its space"):
        ez.score("|none~0|", "params")
