"""What every proxy promises."""

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
from epochzero.engine import Network, PlanNetwork, parse, score_network, score_population
from epochzero.registry import proxies, spaces
from epochzero.types import Origin, Score

SPACE = "nb201"
SIZE = 8
"""small enough to be quick, large enough for proxies that compare samples"""


def check_proxy(name: str) -> None:
    """Run every check of this file on one proxy."""
    check_direction_is_declared(name)
    check_leaves_the_network_alone(name)
    check_alone_or_together(name)
    check_population_does_not_matter(name)
    check_plan_and_module_agree(name)
    check_disconnected_network(name)


def close(one: Score, other: Score, tolerance: float = 1e-5) -> bool:
    """Equal in status, and in value up to rounding."""
    if one.status != other.status:
        return False
    return not one.ok or math.isclose(one.value, other.value, rel_tol=tolerance, abs_tol=1e-7)


def check_direction_is_declared(name: str) -> None:
    proxy = parse(name)
    assert isinstance(proxy.higher_is_better, bool), f"{name} does not say whether higher is better"
    assert proxy.summary, f"{name} does not say what it is"
    assert parse(proxy.text).text == proxy.text, f"{name} is not found under its own text"


def check_leaves_the_network_alone(name: str) -> None:
    """Weights, buffers, gradients, mode, hooks and the global random state are as before."""
    module = _module()
    module.train()
    module[1].eval()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    modes = [part.training for part in module.modules()]
    random_state = torch.random.get_rng_state()
    batch = data.pink(size=SIZE)
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
    """Which other proxies are asked for does not matter."""
    batch = data.pink(size=SIZE)
    for network, everyone in zip(_networks(2), _together(name if name not in proxies else ""), strict=True):
        alone = score_network(network, [parse(name)], batch, 0).scores[name]
        assert close(alone, everyone[name]), f"{name} is {alone} alone and {everyone[name]} with the others"


def check_population_does_not_matter(name: str) -> None:
    """Neither the neighbours in a population nor their order matter."""
    batch = data.pink(size=SIZE)
    networks = _networks(3)
    alone = [score_network(network, [parse(name)], batch, 0).scores[name] for network in networks]
    backwards = score_population(networks[::-1], [parse(name)], batch, 0)[::-1]
    for one, other in zip(alone, backwards, strict=True):
        assert close(one, other.scores[name]), f"{name} is {one} alone and {other.scores[name]} in a population"


def check_plan_and_module_agree(name: str) -> None:
    """An architecture, its module and its printed code, run as a stranger's module, score alike."""
    batch = data.pink(size=SIZE)
    space = spaces[SPACE]
    plan = space.plan(space.sample(Random(3)))
    module = plan.module()
    names: dict[str, object] = {}
    exec(compile(plan.code(), "printed", "exec"), names)
    printed = names["Network"]()  # type: ignore[operator]
    printed.load_state_dict(module.state_dict())
    planned = score_network(PlanNetwork(plan), [parse(name)], batch, 0).scores[name]
    for what, network in (("module", as_network(module, batch)), ("printed code", as_network(printed, batch))):
        found = score_network(network, [parse(name)], batch, 0).scores[name]
        assert close(planned, found, 1e-4), f"{name} is {planned} for the plan and {found} for its {what}"


def check_disconnected_network(name: str) -> None:
    """A network without a path from input to output gets a finite score, or a reason."""
    batch = data.pink(size=SIZE)
    space = spaces[SPACE]
    network = PlanNetwork(space.plan(space.smallest()))
    score = score_network(network, [parse(name)], batch, 0).scores[name]
    if score.ok:
        assert math.isfinite(score.value), f"{name} gives {score.value} for a disconnected network"
    else:
        assert math.isnan(score.value) and score.why, f"{name} does not say why it has no score"


def check_same_in_another_process(names: list[str]) -> None:
    """The same seed gives the same scores elsewhere. Takes all proxies at once: a new process is slow to start."""
    batch = data.pink(size=SIZE)
    here = score_network(_networks(1)[0], [parse(name) for name in names], batch, 0).scores
    program = (
        "import json, sys\n"
        "from epochzero import data\n"
        "from epochzero.engine import parse, score_network\n"
        "from epochzero.testing.proxies import SIZE, _networks\n"
        "found = score_network(_networks(1)[0], [parse(n) for n in sys.argv[1:]], data.pink(size=SIZE), 0).scores\n"
        "print(json.dumps({name: [score.value, score.status] for name, score in found.items()}))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *names], capture_output=True, text=True, check=True)
    for name, (value, status) in json.loads(done.stdout).items():
        assert close(here[name], Score(value, status)), f"{name} is {here[name]} here and {value} in another process"


@lru_cache(maxsize=4)
def _together(also: str) -> list[dict[str, Score]]:
    """Two networks scored by every registered proxy at once, and by one more."""
    everything = [parse(name) for name in (*proxies, *filter(None, [also]))]
    return [score_network(network, everything, data.pink(size=SIZE), 0).scores for network in _networks(2)]


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
