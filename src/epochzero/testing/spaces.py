"""The contract of spaces of plans or modules.

check_space("nb201")                                     a registered space
check_space(MySpace(), samples=3, input_shape=(3, 8, 8))  or any other; small inputs make it quick
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from epochzero import data
from epochzero.data import Batch
from epochzero.engine import PlanNetwork, parse
from epochzero.engine.modules.module_network import ModuleNetwork
from epochzero.engine.population.population import Population
from epochzero.engine.space_networks import budgeted, built, network_of, size_of
from epochzero.errors import UserError
from epochzero.plan import Plan
from epochzero.registry import spaces
from epochzero.spaces.base import AnySpace, GivesPlans, ModuleSpace, check_complete
from epochzero.spaces.budget import Budget, Cost, least_of
from epochzero.testing import networks
from epochzero.testing.populations import by_itself, check_same_in_a_population, precise
from epochzero.types import Origin, Shape

ENUMERABLE = 50_000
"""largest number of architectures of a space that is checked completely"""
COUNTABLE = 500
"""and of so few, each is drawn often enough to see that all are as likely"""
MOVES = 5
IN_A_POPULATION = 2
"""different networks that form one"""
CHEAP = ("l2_norm", "snip", "fisher", "naswot")
"""proxies that are compared between populations and single networks: of weights, gradients and layers, in one pass"""
TOLERANCE = 1e-3
"""of the largest output: single precision through a hundred layers"""


def check_space(
    space: str | AnySpace, samples: int = 5, *, input_shape: Shape = (3, 32, 32), num_classes: int = 10, seed: int = 0
) -> None:
    """Run every check of this file on the smallest and on a few random architectures of one space."""
    tested: AnySpace = spaces[space] if isinstance(space, str) else space
    check_complete(tested)
    if isinstance(space, str):
        assert tested.name == space, f"the space '{space}' calls itself '{tested.name}'"
    batch = data.white(input_shape, num_classes, size=4, parts=1)
    rng = Random(seed)
    archs = [tested.smallest(), *(tested.sample(rng) for _ in range(samples))]
    for arch in archs:
        check_architecture(tested, arch, batch, rng)
    check_sampling(tested)
    check_enumeration(tested, archs)
    check_smallest(tested, archs, batch)
    check_budget(tested, archs, batch)
    if isinstance(tested, GivesPlans):
        check_populations(tested.name, tested, archs, batch)
    check_refuses_nonsense(tested)


# Architectures


def check_architecture(space: AnySpace, arch: Any, batch: Batch, rng: Random) -> None:
    """Its text, its neighbours and its network."""
    check_text(space, arch)
    check_moves(space, arch, rng)
    if isinstance(space, GivesPlans):
        check_plan(space.plan(arch, batch.num_classes, batch.input_shape))
    else:
        check_build(space, arch, batch)


def check_text(space: AnySpace, arch: Any) -> None:
    text = space.text(arch)
    assert isinstance(hash(arch), int), "an architecture has to be hashable"
    assert space.parse(text) == arch, f"{text!r} does not read back as what it was written from"
    assert space.text(space.parse(text)) == text, f"{text!r} is written differently after reading it"
    if hasattr(space, "key"):
        assert space.key(space.parse(text)) == space.key(arch), f"{text!r} has another key after reading it"


def check_moves(space: AnySpace, arch: Any, rng: Random) -> None:
    """Neighbours are others, each once and valid; a mutation is one of them."""
    neighbours = space.neighbours(arch)
    assert neighbours, f"{space.text(arch)!r} has no neighbour"
    assert len(neighbours) == len(set(neighbours)), "a neighbour is listed twice"
    assert arch not in neighbours, "an architecture is its own neighbour"
    for neighbour in rng.sample(neighbours, min(MOVES, len(neighbours))):
        check_text(space, neighbour)
    for _ in range(MOVES):
        assert space.mutate(arch, rng) in neighbours, "a mutation is no neighbour"


def check_sampling(space: AnySpace) -> None:
    """Samples come from the generator that is given and from nothing else."""
    python, state = random.getstate(), torch.random.get_rng_state()
    drawn = [[space.sample(rng) for _ in range(MOVES)] for rng in (Random(1), Random(1))]
    assert drawn[0] == drawn[1], "the same random state gives another sample"
    assert random.getstate() == python, "sampling moves Python's global random state"
    assert torch.equal(torch.random.get_rng_state(), state), "sampling moves torch's global random state"


def check_enumeration(space: Any, archs: Sequence[Any]) -> None:
    """Where a small space can be gone through, it holds `count()` architectures, each as likely as the others."""
    if not hasattr(space, "__iter__") or not hasattr(space, "count") or space.count() > ENUMERABLE:
        return
    everything = list(islice(space, ENUMERABLE + 1))
    assert len(everything) == space.count(), f"count() is {space.count()}, and iteration gives {len(everything)}"
    assert len(set(everything)) == len(everything), "iteration gives an architecture twice"
    assert set(archs) <= set(everything), "iteration leaves out an architecture that is sampled"
    if len(everything) <= COUNTABLE:
        rng, each = Random(2), 50
        drawn = Counter(space.sample(rng) for _ in range(each * len(everything)))
        assert set(drawn) <= set(everything), "a sample is missing in the iteration"
        freedom = max(1, len(everything) - 1)
        chi_squared = sum((drawn[arch] - each) ** 2 / each for arch in everything)
        assert chi_squared <= freedom + 5 * (2 * freedom) ** 0.5, "samples are not uniform over the space"


def check_refuses_nonsense(space: AnySpace) -> None:
    for text in ("", "nonsense", "|" * 1000, "\0", "é~0", space.text(space.smallest()) + "x"):
        try:
            space.parse(text)
        except UserError as error:
            assert len(str(error).splitlines()) == 1, "the message is longer than a sentence"
        else:
            raise AssertionError(f"{text!r} is read as an architecture")


# Sizes


def check_smallest(space: AnySpace, archs: Sequence[Any], batch: Batch) -> None:
    costs: tuple[tuple[Cost, str], ...] = (("params", "parameters"), ("flops", "multiply-accumulates"))
    for cost, words in costs:
        smallest = least_of(space, cost, batch.num_classes, batch.input_shape)
        least = getattr(size_of(space, smallest, batch), cost)
        for arch in archs:
            size = getattr(size_of(space, arch, batch), cost)
            assert least <= size, f"{space.text(arch)!r} has fewer {words} than the smallest"


def check_budget(space: AnySpace, archs: Sequence[Any], batch: Batch) -> None:
    """Within a budget that just these fit, samples and mutations fit too."""
    sizes, rng = [size_of(space, arch, batch) for arch in archs], Random(3)
    memory = budgeted(space, Budget(max_peak_memory=1), batch).remember
    within = Budget(max(size.params for size in sizes), max(size.flops for size in sizes))
    for budget in (within, Budget(max_peak_memory=max(sum(memory(arch)) for arch in archs))):
        fitting = budgeted(space, budget, batch)
        for _ in range(MOVES):
            arch = fitting.sample(rng)
            for drawn in (arch, fitting.mutate(arch, rng)):
                fits = budget.fits(size_of(space, drawn, batch)) and budget.holds(memory(drawn))
                assert fits, f"{space.text(drawn)!r} is drawn against the budget"


# Plans


def check_plan(plan: Plan) -> None:
    """It counts what its module has and what torch counts, and is one function in all its forms."""
    module = plan.module()
    trainable = sum(p.numel() for p in module.parameters() if p.requires_grad)
    assert plan.params == trainable, f"the plan has {plan.params} parameters, and its module {trainable}"
    printed = networks.printed(plan)
    if printed is not None:
        printed.load_state_dict(module.state_dict())
    x = torch.randn(4, *plan.input_shape, generator=torch.Generator().manual_seed(0))
    network = PlanNetwork(plan, module.weights())
    with torch.no_grad():
        for training in (False, True):
            logits = network.forward(x, network.weights, "train" if training else "eval")
            assert logits.shape == (len(x), *plan.output_shape), "the output's shape is not the plan's"
            _check_same(logits, _first(module.train(training)(x)), "engine", "module")
            if printed is not None:
                _check_same(logits, _first(printed.train(training)(x)), "engine", "printed code")
    counted = FlopCounterMode(display=False)
    with counted, torch.no_grad():
        module.to("meta").eval()(x[:1].to("meta"))
    macs = counted.get_total_flops() / 2
    if plan.flops != macs:
        macs += _unknown_to_torch(plan)
    assert plan.flops == macs, f"the plan has {plan.flops} multiply-accumulates, and torch counts {macs}"


def _unknown_to_torch(plan: Plan) -> int:
    """The multiply-accumulates of those ops of which torch counts none: it knows products of matrices alone."""
    total = 0
    for i, node in enumerate(plan.nodes):
        shapes = [plan.nodes[source].shape for source in node.inputs]
        macs = node.op.macs(*shapes) if shapes and i not in plan.tower else 0
        if macs:
            x, w = (
                [torch.empty(shape, device="meta") for shape in given]
                for given in ([(1, *shape) for shape in shapes], [plan.weights[name].shape for name in node.params])
            )
            with FlopCounterMode(display=False) as counted, torch.no_grad():
                node.op.run(tuple(x), tuple(w))
            total += 0 if counted.get_total_flops() else macs
    return total


def check_populations(name: str, space: GivesPlans, archs: Sequence[Any], batch: Batch) -> None:
    """Networks that can run side by side score in a population as they do one at a time.

    The smallest is in it twice, so that several networks have each of its ops.
    """
    plans = [space.plan(arch, batch.num_classes, batch.input_shape) for arch in dict.fromkeys(archs)]
    plans = plans[:IN_A_POPULATION]
    if Population.fits([PlanNetwork(plan) for plan in plans]):
        asked = [precise(parse(name)) for name in CHEAP]
        members = [by_itself(plan, asked, batch) for plan in plans]
        check_same_in_a_population(name, [*members[::-1], members[0]], asked, batch)


# Modules


def check_build(space: ModuleSpace, arch: Any, batch: Batch) -> None:
    """A new module each time, whose weights depend on seed and architecture alone, and that the engine can run."""
    one, other = (built(space, arch, batch, 0) for _ in range(2))
    assert one is not other, "build gives the same module again: make a new one each time"
    shared = {p.data_ptr() for p in one.parameters()} & {p.data_ptr() for p in other.parameters() if p.numel()}
    assert not shared, "two modules that were built share weights"
    again = other.state_dict()
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, again[name]), f"the same seed gives another {name!r}"
    x = batch.part(0)[0]
    network = ModuleNetwork(one, batch)
    logits = network.forward(x, network.weights, "eval").detach()
    assert logits.dim() >= 2 and len(logits) == len(x), f"the output should be [samples, classes], not {logits.shape}"
    with torch.no_grad():
        _check_same(logits, one.eval()(x), "engine", "module")
    drawn = network_of(space, arch, batch, Origin("kaiming"))
    assert bool(drawn.forward(x, drawn.weights, "train").isfinite().all()), "drawn anew, the output is not finite"


# Outputs


def _first(returned: Any) -> Tensor:
    """The output, without the auxiliary one that comes with it in training."""
    first: Tensor = returned[0] if isinstance(returned, tuple) else returned
    return first


def _check_same(one: Tensor, other: Tensor, what: str, second: str) -> None:
    assert bool(one.isfinite().all()), f"the output of the {what} is not finite"
    apart, scale = (one - other).abs().max().item(), one.abs().max().item()
    assert apart <= TOLERANCE * scale, f"{what} and {second} differ by {apart:.3g} in outputs of up to {scale:.3g}"
