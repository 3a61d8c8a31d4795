"""The contract of proxies."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from functools import lru_cache
from random import Random

import torch
from torch import nn

from epochzero import data
from epochzero.api import as_network
from epochzero.engine import Network, PlanNetwork, parse, score_network
from epochzero.registry import proxies, spaces
from epochzero.testing import networks
from epochzero.testing.populations import by_itself, check_population_runs, check_same_in_a_population, precise
from epochzero.types import Origin, Score

SPACE = "nb201"
SIZE = 8
"""samples: few enough to be quick, enough for proxies that compare them"""
SIZES = SIZE, 16
"""of the batches on which populations are scored: the second where no network has a score on the first"""
POPULATIONS = 1, 3
"""networks of one kind that form a population, beside one of `MIXED` networks of all kinds"""
MIXED = 8


def check_proxy(name: str) -> None:
    """Run every check of this file on one proxy."""
    check_direction_is_declared(name)
    check_population_does_not_matter(name)
    check_leaves_the_network_alone(name)
    check_alone_or_together(name)
    check_plan_and_module_agree(name)
    check_disconnected_network(name)


def samples_of(*names: str) -> int:
    """Samples that passes of these proxies take, and at least `SIZE`."""
    runs = [need.run for name in names for need in parse(name).needs]
    asked = [run.only[1] for run in runs if run.only is not None and run.inputs != "circle"]
    return max(SIZE, *asked, 0)


def close(one: Score, other: Score, tolerance: float = 1e-5) -> bool:
    """Equal in status, and in value up to rounding."""
    if one.status != other.status:
        return False
    return not one.ok or math.isclose(one.value, other.value, rel_tol=tolerance, abs_tol=1e-7)


def check_direction_is_declared(name: str) -> None:
    proxy = parse(name)
    assert isinstance(proxy.higher_is_better, bool), f"{name} does not say whether higher is better"
    assert proxy.summary, f"{name} does not say what it is"
    registered = name.partition("(")[0].strip()
    assert proxy.name == registered, f"the proxy registered as '{registered}' calls itself '{proxy.name}'"
    assert parse(proxy.text).text == proxy.text, f"{name} is not found under its own text"


def check_leaves_the_network_alone(name: str) -> None:
    """Weights, buffers, gradients, mode, hooks and the global random state are as before."""
    module = _module()
    module.train()
    module[1].eval()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    modes = [part.training for part in module.modules()]
    random_state = torch.random.get_rng_state()
    batch = data.pink(size=samples_of(name))
    score_network(as_network(module, batch), [parse(name)], batch, 0)
    assert torch.equal(random_state, torch.random.get_rng_state()), f"{name} moved the global random state"
    assert modes == [part.training for part in module.modules()], f"{name} changed a training flag"
    for key, value in module.state_dict().items():
        assert torch.equal(value, before[key]), f"{name} changed {key}"
    for part in module.modules():
        assert not part._forward_hooks and not part._forward_pre_hooks, f"{name} left a hook behind"
    for parameter in module.parameters():
        assert parameter.grad is None and parameter.requires_grad, f"{name} left a gradient or a flag behind"


def check_alone_or_together(name: str) -> None:
    """A score does not depend on the other proxies that are asked for."""
    batch = data.pink(size=samples_of(*proxies, name))
    for network, everyone in zip(_networks(2), _together(tuple(dict.fromkeys([*proxies, name]))), strict=True):
        alone = score_network(network, [parse(name)], batch, 0).scores[name]
        assert close(alone, everyone[name]), f"{name} is {alone} alone and {everyone[name]} with the others"


def check_population_does_not_matter(name: str) -> None:
    """A score, which some network has, is the same in any population, whoever else is in it and in any order.

    The populations run on the CPU in double precision: one and three networks of each kind in
    `epochzero.testing.networks`, and eight of all kinds together.
    """
    proxy, rng = precise(parse(name)), Random(name)
    plans = {kind: networks.some(kind, max(POPULATIONS)) for kind in networks.KINDS}
    for size in SIZES:
        batch = data.pink(networks.SHAPE, networks.CLASSES, size=max(size, samples_of(name)))
        members = {kind: [by_itself(plan, [proxy], batch) for plan in own] for kind, own in plans.items()}
        everyone = [member for own in members.values() for member in own]
        scores = [member.scores[proxy.text] for member in everyone]
        if any(score.ok for score in scores):
            break
    else:
        whys = " / ".join(dict.fromkeys(score.why for score in scores))
        raise AssertionError(f"{name} has a score for none of {len(scores)} networks ({', '.join(plans)}): {whys}")
    for kind, own in members.items():
        check_population_runs(kind, own, [proxy], batch)
        for size in POPULATIONS:
            check_same_in_a_population(kind, rng.sample(own, size), [proxy], batch)
    check_same_in_a_population("all kinds", rng.sample(everyone, MIXED), [proxy], batch)


def check_plan_and_module_agree(name: str) -> None:
    """An architecture, its module and its printed code, run as a stranger's module, score alike."""
    batch = data.pink(size=samples_of(name))
    space = spaces[SPACE]
    plan = space.plan(space.sample(Random(3)))
    module = plan.module()
    printed = networks.printed(plan)
    assert printed is not None
    printed.load_state_dict(module.state_dict())
    planned = score_network(PlanNetwork(plan), [parse(name)], batch, 0).scores[name]
    for what, network in (("module", as_network(module, batch)), ("printed code", as_network(printed, batch))):
        score = score_network(network, [parse(name)], batch, 0).scores[name]
        assert close(planned, score, 1e-4), f"{name} is {planned} for the plan and {score} for its {what}"


def check_disconnected_network(name: str) -> None:
    """A network without a path from input to output gets a finite score, or a reason."""
    batch = data.pink(size=samples_of(name))
    space = spaces[SPACE]
    network = PlanNetwork(space.plan(space.smallest()))
    score = score_network(network, [parse(name)], batch, 0).scores[name]
    if score.ok:
        assert math.isfinite(score.value), f"{name} gives {score.value} for a disconnected network"
    else:
        assert math.isnan(score.value) and score.why, f"{name} does not say why it has no score"


def check_same_in_another_process(names: list[str]) -> None:
    """The same seed gives the same scores elsewhere. Takes all proxies at once: a new process is slow to start."""
    size = samples_of(*names)
    batch = data.pink(size=size)
    here = score_network(_networks(1)[0], [parse(name) for name in names], batch, 0).scores
    program = (
        "import json, sys\n"
        "from epochzero import data\n"
        "from epochzero.engine import parse, score_network\n"
        "from epochzero.testing.proxies import _networks\n"
        f"batch = data.pink(size={size})\n"
        "scores = score_network(_networks(1)[0], [parse(n) for n in sys.argv[1:]], batch, 0).scores\n"
        "print(json.dumps({name: [score.value, score.status] for name, score in scores.items()}))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *names], capture_output=True, text=True, check=True)
    for name, (value, status) in json.loads(done.stdout).items():
        assert close(here[name], Score(value, status)), f"{name} is {here[name]} here and {value} in another process"


@lru_cache(maxsize=4)
def _together(names: tuple[str, ...]) -> list[dict[str, Score]]:
    """Two networks scored by all these proxies at once."""
    everything = [parse(name) for name in names]
    batch = data.pink(size=samples_of(*names))
    return [score_network(network, everything, batch, 0).scores for network in _networks(2)]


def _networks(count: int) -> list[Network]:
    space, rng = spaces[SPACE], Random(7)
    return [PlanNetwork(space.plan(space.sample(rng)), Origin("default", 0)) for _ in range(count)]


def _module() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.Dropout(0.2),
            nn.Identity(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(128, 10),
        )
