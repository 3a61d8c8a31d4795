"""The least samples of each proxy: with fewer it has a reason, with enough a value."""

from __future__ import annotations

import pytest

from epochzero.engine import parse, score_network
from epochzero.registry import proxies
from tests.proxies.nets import conv_net, random_batch
from tests.proxies.test_hostile import FOR_OTHER_NETWORKS

NEEDS = {
    1: {
        *(
            "az_expressivity",
            "az_progressivity",
            "curvature",
            "dextr",
            "dextr(variant=reference)",
            "dextr_opt",
            "fisher",
        ),
        *("activations", "depth", "layers", "near", "size", "vkdnw", "width"),
        *("flops", "fmi", "grad_norm", "grasp", "knas", "l2_norm", "meco", "meco_opt", "nasi_trace", "nasi_trace_sum"),
        *("ntk_cond(of=outputs)", "ntk_trace", "params", "plain", "sigeo(batches=2)", "snip", "synflow", "tf_tas"),
        *("hnas(form=realizable)", "swap(samples=1)", "swap_reg(samples=1)", "zen", "zico"),
    },
    2: {
        *("epe_nas", "hnas", "hnas(form=code)", "hnas(form=non_realizable)", "hnas(literal=true,metric=grad)", "jacov"),
        *("hnas(form=realizable,metric=naswot)", "linear_regions", "naswot", "ntk_cond", "ntk_cond(of=sum)"),
    },
    4: {"knas(variant=reference)"},
    16: {"lswag", "swap", "swap_reg"},
}
ALL = [parse(proxy) for least in NEEDS for proxy in sorted(NEEDS[least])]
NEW = sorted(set(proxies) - {proxy.name for proxy in ALL} - FOR_OTHER_NETWORKS)


def test_these_are_proxies() -> None:
    assert {proxy.name for proxy in ALL} | FOR_OTHER_NETWORKS <= set(proxies)
    assert [proxy.text for proxy in ALL] == [text for least in NEEDS for text in sorted(NEEDS[least])]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 15, 16])
def test_with_so_many_samples(size: int) -> None:
    found = score_network(conv_net(), [*ALL, *map(parse, NEW)], random_batch(size=size), 0).scores
    assert all(found[name].ok or (size < 16 and found[name].why) for name in NEW)
    for least, those in NEEDS.items():
        for proxy in those:
            one = found[proxy]
            if size < least:
                assert one.status == "failed"
                assert one.why in (
                    f"needs at least {least} samples, and the batch has {size}",
                    f"needs {least} samples, and a part of this data has {size}",
                )
            else:
                assert one.ok, f"{proxy}: {one.why}"
