"""What every proxy says where there is nothing to say: a reason, never a number and never a traceback."""

from __future__ import annotations

import pytest
import torch

from epochzero.engine import parse, score_network
from epochzero.engine.hooks import ModuleNetwork
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
    *("sigeo(batches=2)", "snip", "zico"),
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
        *("swap(samples=8)", "swap_reg(samples=8)", "zen"),
    }
)
FOR_BLOCKS_IN_A_ROW = {"az_trainability"}


def test_these_are_all_proxies() -> None:
    assert {parse(text).name for text in ALL | FOR_BLOCKS_IN_A_ROW} == set(proxies)


@pytest.mark.parametrize("proxy", sorted(ALL))
def test_without_labels(proxy: str) -> None:
    found = score(conv_net(), proxy, unlabelled(random_batch()))
    assert parse(proxy).needs_labels == (proxy in FROM_LABELS)
    if proxy in FROM_LABELS:
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


@pytest.mark.parametrize("proxy", ["curvature", "zico"])
def test_a_weight_that_is_no_number_is_not_taken_for_a_cut(proxy: str) -> None:
    network = conv_net()
    network.weights["stem.conv.weight"] = network.weights["stem.conv.weight"] * float("nan")
    found = score(network, proxy, random_batch())
    assert found.status == "degenerate"
    assert "nan" in found.why


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
