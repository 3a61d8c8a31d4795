"""`check_proxy` names each promise that a proxy breaks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from epochzero.engine import Pass, Proxy, Summed, Trace, each_layer, need, together
from epochzero.engine import proxy as declared
from epochzero.errors import DegenerateError
from epochzero.registry import proxies
from epochzero.testing import check_proxy
from epochzero.testing import proxies as checks
from tests.forgetting import plugins_forgotten


@pytest.fixture(autouse=True)
def forget(shallow_nb201: None) -> Iterator[None]:
    with plugins_forgotten():
        yield


def norm(weight: Tensor) -> Tensor:
    return torch.linalg.vector_norm(weight)  # type: ignore[no-any-return]


def energy(output: Tensor) -> Tensor:
    return output.square().mean()


def made(compute: Callable[..., Any], **reads: Any) -> str:
    """Registers a proxy of these reads; returns its name."""
    plain, streams = reads.pop("reads", ()), reads
    compute.__doc__ = "Made up."
    declared(needs=[need(Pass(), *plain, **streams)], higher_is_better=True)(compute)
    return compute.__name__


def total(trace: Trace) -> Tensor:
    return torch.stack([value for value in trace.layers if value is not None]).sum()


def test_a_proxy_that_keeps_every_promise_passes() -> None:
    def weight_norm(trace: Trace) -> Tensor:
        return each_layer(norm, [trace], "weights").sum()

    check_proxy(made(weight_norm, reads=["weights"]))


# Populations


def seven(maps: Tensor) -> Tensor:
    return torch.full((maps.shape[1],), 7.0, dtype=maps.dtype)


def in_other_order(maps: Tensor) -> Tensor:
    """Right but for whose is which."""
    return maps.square().flatten(2).mean(2).mean(0).flip(0)


def seven_onto(total: Tensor | None, networks: int, owners: Tensor, maps: Tensor) -> Tensor:
    return torch.full((networks,), 7.0, dtype=maps.dtype)


@pytest.mark.parametrize("many", [seven, in_other_order])
def test_another_score_in_a_population(many: Callable[..., Tensor]) -> None:
    def apart(trace: Trace) -> Tensor:
        return total(trace)

    stream = together(many)(lambda output: output.square().mean())
    with pytest.raises(
        AssertionError, match=r"apart is [\d.]+ for a network by itself, and [\d.]+ for the same network"
    ):
        check_proxy(made(apart, layers=stream))


def test_another_sum_in_a_population() -> None:
    def added(trace: Trace) -> Tensor:
        return total(trace)

    stream = Summed(together(onto=seven_onto)(lambda output: output.square().mean()))
    with pytest.raises(AssertionError, match=r"added is [\d.]+ for a network by itself, and 7.0 for the same network"):
        check_proxy(made(added, layers=stream))


@pytest.mark.parametrize("error", [ValueError, RuntimeError, TypeError, DegenerateError])
def test_a_version_for_many_networks_that_raises(error: type[Exception]) -> None:
    """With some of these, the engine would run the networks one at a time, and nobody would notice."""

    def refused(maps: Tensor) -> Tensor:
        raise error("not today")

    def refusing(trace: Trace) -> Tensor:
        return total(trace)

    stream = together(refused)(lambda output: output.square().mean())
    says = f"refusing raises {error.__name__} for several networks at once .*: not today"
    with pytest.raises(AssertionError, match=says):
        check_proxy(made(refusing, layers=stream))


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        (DegenerateError("it is Monday"), "it is Monday"),
        (RuntimeError("no shape fits"), "the proxy raised RuntimeError: no shape fits"),
        (float("nan"), "the value is nan"),
        (float("inf"), "the value is inf"),
    ],
    ids=str,
)
def test_no_score_for_any_network(outcome: Exception | float, why: str) -> None:
    def useless(trace: Trace) -> float:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    says = rf"useless has a score for none of 9 networks \(cells, widths, transformers\): {why}"
    with pytest.raises(AssertionError, match=says):
        check_proxy(made(useless, reads=["weights"]))


def test_an_error_that_is_a_bug() -> None:
    def buggy(trace: Trace) -> float:
        return dict[str, float]()["score"]

    with pytest.raises(AssertionError, match="buggy raises KeyError for a network by itself: 'score'"):
        check_proxy(made(buggy, reads=["weights"]))


# The other promises, each check by itself


def test_what_is_not_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    def vague(trace: Trace) -> float:
        return 1.0

    name = made(vague, reads=["weights"])
    monkeypatch.setattr(Proxy, "summary", property(lambda self: ""))
    with pytest.raises(AssertionError, match="vague does not say what it is"):
        check_proxy(name)
    object.__setattr__(proxies[name], "higher_is_better", "perhaps")
    with pytest.raises(AssertionError, match="vague does not say whether higher is better"):
        check_proxy(name)


def test_a_name_that_is_another_s() -> None:
    proxies.register("borrowed", proxies["params"])
    with pytest.raises(AssertionError, match="the proxy registered as 'borrowed' calls itself 'params'"):
        check_proxy("borrowed")


def writes(trace: Trace) -> None:
    next(iter(trace.network.network.module.parameters())).data.add_(1)  # type: ignore[attr-defined]


def draws(trace: Trace) -> None:
    torch.rand(1)


def evaluates(trace: Trace) -> None:
    trace.network.network.module.eval()  # type: ignore[attr-defined]


def hooks(trace: Trace) -> None:
    trace.network.network.module.register_forward_hook(lambda *_: None)  # type: ignore[attr-defined]


def differentiates(trace: Trace) -> None:
    weight = next(iter(trace.network.network.module.parameters()))  # type: ignore[attr-defined]
    weight.grad = torch.zeros_like(weight)


def freezes(trace: Trace) -> None:
    module: nn.Module = trace.network.network.module  # type: ignore[attr-defined]
    module.requires_grad_(False)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (writes, "careless changed 0.weight"),
        (draws, "careless moved the global random state"),
        (evaluates, "careless changed a training flag"),
        (hooks, "careless left a hook behind"),
        (differentiates, "careless left a gradient or a flag behind"),
        (freezes, "careless left a gradient or a flag behind"),
    ],
)
def test_a_network_that_is_changed(harm: Callable[[Trace], None], says: str) -> None:
    def careless(trace: Trace) -> float:
        harm(trace)
        return 1.0

    with pytest.raises(AssertionError, match=says):
        checks.check_leaves_the_network_alone(made(careless, reads=["network"]))


def test_a_score_that_depends_on_what_else_is_scored() -> None:
    calls = itertools.count()

    def counting(trace: Trace) -> float:
        return float(next(calls))

    with pytest.raises(AssertionError, match=r"counting is .* alone and .* with the others"):
        checks.check_alone_or_together(made(counting, reads=["params"]))


def test_another_score_for_a_module() -> None:
    def snobbish(trace: Trace) -> float:
        return float(type(trace.network.network).__name__ == "PlanNetwork")

    with pytest.raises(AssertionError, match=r"snobbish is .* for the plan and .* for its printed code"):
        checks.check_plan_and_module_agree(made(snobbish, reads=["network"]))


def test_no_reason_for_a_disconnected_network() -> None:
    def mute(trace: Trace) -> float:
        raise DegenerateError("")

    with pytest.raises(AssertionError, match="mute does not say why it has no score"):
        checks.check_disconnected_network(made(mute, reads=["weights"]))


def test_another_score_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def params(trace: Trace) -> float:
        return 1.0

    name = "params"
    changed = Proxy(name, params, proxies[name].needs_of, True, {})
    monkeypatch.setitem(proxies._members, name, changed)
    with pytest.raises(AssertionError, match=r"params is .*1.0.* here and .* in another process"):
        checks.check_same_in_another_process([name])
