"""The table of reads: complete, documented, and served by both runners."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from epochzero import data
from epochzero.engine import Pass, PlanNetwork, Trace, need, passes, proxy, reads
from epochzero.engine.passes import Item
from epochzero.engine.population.joint_run import can_run, run_together
from epochzero.engine.population.population import Population
from epochzero.engine.single.run import run_pass
from epochzero.registry import spaces

SHAPE = (3, 8, 8)


def test_every_read_is_an_attribute_of_a_trace_and_in_the_help() -> None:
    assert set(Trace.__annotations__) == reads.NAMES
    assert passes.__doc__ is not None
    for name, read in reads.TABLE.items():
        assert f"    {name} " in passes.__doc__ and read.about in passes.__doc__


def test_derived_sets() -> None:
    assert {"layers", "responses", "blocks", "relus", "norms", "features"} == reads.FORWARD_STREAMS
    assert {"gradients", "parameter_gradients", "hessian_gradients", "layer_gradients"} == reads.LOSS_GRADIENTS
    assert {"kernel_loss", "kernel_label", "kernel_sum", "kernel_outputs", "hessian_gradients"} == reads.PER_SAMPLE
    assert {"weights", "parameters", "labels", "network", "velocity", "acceleration"} | reads.FACTS == (
        reads.NAMES - reads.NEED_FORWARD
    )


def test_a_stream_needs_a_function_and_other_reads_take_none() -> None:
    for name, read in reads.TABLE.items():
        bare, mapped = partial(need, Pass(), name), partial(need, Pass(), **{name: torch.sum})
        right, wrong = (mapped, bare) if read.stream else (bare, mapped)
        assert right().reads.keys() == {name}
        with pytest.raises(
            ValueError, match=f"'{name}' needs a function" if read.stream else f"'{name}' takes no function"
        ):
            wrong()


def test_a_name_that_there_is_not_comes_with_a_near_one() -> None:
    with pytest.raises(ValueError, match=r"no read 'weigths'\. Did you mean 'weights'"):
        need(Pass(), "weigths")
    with pytest.raises(ValueError, match=r"inputs='nois'\. Did you mean 'noise'"):
        need(Pass(inputs="nois"), "logits")  # type: ignore[arg-type]


def test_a_setting_that_is_not_keyword_only() -> None:
    with pytest.raises(ValueError, match="'power' of compute has to be keyword-only"):

        @proxy(needs=[need(Pass(), "weights")], higher_is_better=True)
        def compute(trace: Trace, power: float = 1.0) -> float:
            return power


@pytest.mark.parametrize("read", sorted(reads.NAMES - {"network"}))
def test_one_network_and_a_population_read_the_same(read: str) -> None:
    """Each read by itself, so that nothing else of the pass provides it."""

    def total(*tensors: object) -> torch.Tensor:
        return torch.stack([one.sum() for one in tensors if isinstance(one, torch.Tensor)]).sum()

    space = spaces["nb201"]
    cells = ("nor_conv_3x3", "nor_conv_1x1")
    texts = [f"|{a}~0|+|{b}~0|skip_connect~1|+|skip_connect~0|{a}~1|{b}~2|" for a in cells for b in cells[:1]]
    networks = [PlanNetwork(space.plan(space.parse(text), 3, SHAPE)) for text in texts]
    batch = data.load("pink", input_shape=SHAPE, num_classes=3, size=4)
    on_circle = reads.TABLE[read].stage == "curve"
    run = Pass(inputs="circle" if on_circle else "batch", norm="eval" if on_circle else "train", dtype="float64")
    if read in ("log_gradients", "input_gradients"):  # sums of logits that do not depend on the input otherwise
        run = Pass(inputs="ones", norm="off", weights="absolute", dtype="float64")
    items: list[Item] = [(read, total if reads.TABLE[read].stream else None)]
    population = Population(networks)
    assert can_run(run, items, population, batch)
    columns = run_together(run, items, population, batch, 0)
    for p, network in enumerate(networks):
        alone, together = run_pass(run, items, network, batch, 0)[items[0]], columns.read(items[0], p)
        assert not isinstance(alone, Exception) and not isinstance(together, Exception)
        if read == "structure":
            assert together == alone
            continue
        torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-12)
