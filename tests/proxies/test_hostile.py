"""Every proxy without a value gives a reason, never a number and never a traceback."""

from __future__ import annotations

import pytest
import torch

from epochzero.engine import PlanNetwork, parse, score_network
from epochzero.engine.modules.module_network import ModuleNetwork
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.ops.pool import GlobalAvgPool
from epochzero.registry import proxies
from tests.proxies.nets import (
    IMAGE,
    batch_of,
    chain,
    conv_net,
    cut_net,
    drawn,
    labels,
    layerless_net,
    linear_net,
    random_batch,
    score,
    unlabelled,
)

FROM_LABELS = {
    *("epe_nas", "fisher", "grad_norm", "grasp", "hnas", "hnas(metric=grasp,literal=true)", "knas"),
    *("knas(variant=reference)", "nasi_trace", "nasi_trace_sum", "ntk_cond", "ntk_trace", "plain"),
    *("lswag(samples=8)", "sigeo(batches=2)", "snip", "vkdnw", "zico"),
}
FROM_THE_INPUTS = FROM_LABELS | {
    *("dextr", "dextr(variant=reference)", "dextr_opt", "fmi", "jacov", "meco", "meco_opt", "naswot"),
}
FROM_THE_WEIGHTS = {"grad_norm", "grasp", "l2_norm", "plain", "sigeo(batches=2)", "snip", "synflow", "tf_tas", "zico"}
ALL = (
    FROM_THE_INPUTS
    | FROM_THE_WEIGHTS
    | {
        *("az_expressivity", "az_progressivity", "curvature", "flops", "linear_regions", "params"),
        *("activations", "depth", "layers", "size", "width"),
        *("near(samples=8)", "swap(samples=8)", "swap_reg(samples=8)", "zen"),
    }
)
FOR_OTHER_NETWORKS = {"az_trainability", "wpca"}
NEW = set(proxies) - {parse(text).name for text in ALL | FOR_OTHER_NETWORKS}


def test_these_are_proxies() -> None:
    assert {parse(text).name for text in ALL | FOR_OTHER_NETWORKS} <= set(proxies)


@pytest.mark.parametrize("proxy", sorted(ALL | NEW))
def test_without_labels(proxy: str) -> None:
    found = score(conv_net(), proxy, unlabelled(random_batch(size=16)))
    assert proxy in NEW or parse(proxy).needs_labels == (proxy in FROM_LABELS)
    if parse(proxy).needs_labels:
        assert found.status == "failed"
        assert "needs labels" in found.why
    else:
        assert found.status == "ok"


@pytest.mark.parametrize("proxy", sorted(FROM_THE_INPUTS))
def test_an_input_that_is_no_number(proxy: str) -> None:
    batch = random_batch(parts=2)
    x = batch.part(0)[0].clone()
    x[0, 0, 0, 0] = float("nan")
    broken = batch_of((x, labels(batch, 0).tolist()), (batch.part(1)[0], labels(batch, 1).tolist()))
    assert score(conv_net(), proxy, broken).status == "degenerate"


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("name", ["stem.conv.weight", "conv.norm.running_mean"])
def test_a_given_weight_that_is_no_number(name: str, number: str) -> None:
    """Proxies that only count still score; all others name the weight."""
    weights = {key: w.clone() for key, w in conv_net().weights.items()}
    weights[name].view(-1)[1] = float(number)
    network = PlanNetwork(conv_net().plan, weights)
    found = score_network(network, [parse(proxy) for proxy in ALL | NEW | FOR_OTHER_NETWORKS], random_batch(), 0).scores
    assert {proxy for proxy, one in found.items() if one.ok} == {proxy for proxy in found if parse(proxy).free}
    why = f"the weight '{name}' holds {number.removeprefix('-')}"
    assert {(one.status, one.why) for proxy, one in found.items() if not one.ok} == {("failed", why)}


def test_drawn_weights_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epochzero.engine.network.not_finite", lambda *_: "searched")
    assert conv_net().broken == ""
    assert PlanNetwork(conv_net().plan, conv_net().weights).broken == "searched"


@pytest.mark.parametrize(
    "proxy",
    ["fisher", "grad_norm", "grasp", "hnas(form=realizable,metric=grad)", "plain", "sigeo(batches=2)", "snip", "zico"],
)
def test_a_network_that_no_gradient_reaches(proxy: str) -> None:
    found = score(cut_net(), proxy, random_batch())
    assert (found.status, found.why) == ("degenerate", "no gradient of the loss reaches a conv or linear layer")


@pytest.mark.parametrize("proxy", ["knas", "nasi_trace", "nasi_trace_sum", "ntk_trace"])
def test_its_biases_learn(proxy: str) -> None:
    together = score_network(cut_net(), [parse(proxy), parse("snip")], random_batch(), 0).scores
    assert together[proxy].value > 0
    assert not together["snip"].ok


def test_a_tiny_gradient_is_not_none() -> None:
    """Its square is zero in single precision."""
    found = score(linear_net([[1e-30, 0.0], [0.0, 1e-30]]), "plain", batch_of(([[1e-28, 2e-28]], [1])))
    assert found.ok, found.why


@pytest.mark.parametrize("proxy", sorted(FROM_THE_WEIGHTS))
def test_a_network_without_conv_and_linear_layers(proxy: str) -> None:
    found = score(layerless_net(), proxy, random_batch((3, 6, 6)))
    assert found.status == "degenerate"
    assert "conv or linear layer" in found.why


@pytest.mark.parametrize("proxy", ["fmi", "dextr"])
def test_a_norm_that_sees_one_number(proxy: str) -> None:
    """One sample, and one place in the map: there is no variance. A plan and its module say the same."""
    network = drawn(chain((2, 2, 2), Conv(4, 2), BatchNorm(), ReLU(), GlobalAvgPool(), Linear(3)))
    batch = random_batch((2, 2, 2))
    of_module = score_network(ModuleNetwork(network.plan.module(), batch), [parse(proxy)], batch, 0).scores[proxy]
    assert of_module.status == "failed"
    assert "more than 1 value per channel" in of_module.why
    assert score(network, proxy, batch).status == of_module.status


def test_published_dextr_on_a_network_that_takes_no_images() -> None:
    network = linear_net([[1.0, 2.0], [3.0, 4.0]], [[1.0, 1.0]], relu=True)
    assert score(network, "dextr(variant=reference)", random_batch((2,))).status in ("degenerate", "failed")


def test_a_label_beyond_the_last_class() -> None:
    found = score(conv_net(), "snip", batch_of((torch.zeros(2, *IMAGE), [0, 3])))
    assert found.status == "failed"
    assert "3 outputs" in found.why
