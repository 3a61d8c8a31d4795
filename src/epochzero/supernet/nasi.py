r"""NASI: the architecture whose tangent kernel is large but not too large, from one network that is never trained.

For a sampled architecture A, theta_0 the untrained parameters and one batch of b samples,

    s = || 1/b sum_x grad_theta_0(A) L_x ||^2           about the trace norm of A's tangent kernel        (12)
    R = s - mu max(0, s - nu)                                                                             (13)

is to be large on average over A ~ p_alpha. Sampled with Gumbel noise g_t, always at alpha_0 = 0, with
G_t = grad_alpha R(A(alpha_0, g_t)) straight through the sample, one step is taken at the end (algorithm 1):

    alpha* = 1/T sum_t G_t / max(|G_1|, ..., |G_t|)                                                       (18)

and the architecture is the most probable one under p_alpha*. Above nu the gradient shrinks to (1 - mu) of itself: to
nothing for mu = 1, and it turns round for mu = 2.

    nu mean        the mean of s over 50 sampled architectures (40)
    nu 100         a number; inf for no bound
    nu adaptive    nu_t = (nu0 + sum of s before t) / t (41)

The paper has mu = 2, nu0 = 500 or nu = 100 and T = 100 on DARTS; mu = 1 and nu0 = 1000 on NAS-Bench-1Shot1. Widths and
initialisation set the scale of s, and it does not tell them in full, so the default is the mean. Weights are drawn from
N(0, 1/fan in), as those of the theory are in effect; norms use the batch's statistics.

With `parameters=ntk` every weight is v / sqrt(fan in) with v ~ N(0, 1) and the gradient is that with respect to v,
Jacot et al.'s parameterisation, which the paper names: s is then the sum over tensors of || dL/dW ||^2 / fan in.

Labels may be drawn at random, and so may the data (N(0, 1)). Options may be left out of every choice (`without`, with
commas between them; `nothing` for all options): the paper leaves out `none` on DARTS. Where the most probable cell is
cut in two, the most probable one that is not is taken.

Beware: deep chains of batch norms without a skip have gradients that explode, and s has a heavy tail. Below the bound
such a network outweighs all others, and the division by the largest gradient so far mutes what comes after it. On
NAS-Bench-201 one cell a stage (`cells=1`) has no such tail, takes a fourth of the time and selects better networks
than the five of the space.

Shu, Cai, Dai, Ooi, Low. NASI: label- and data-agnostic neural architecture search at initialization. ICLR 2022.
arXiv:2109.00817
"""

from __future__ import annotations

import heapq
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from epochzero.data import Batch
from epochzero.engine import label_loss
from epochzero.engine.network import runs_faster_channels_last
from epochzero.engine.precision import asked_precision
from epochzero.errors import DataError, UserError
from epochzero.plan import Node, execute, generator
from epochzero.plan.init import draw
from epochzero.plan.ops.mixture import Scaled
from epochzero.spaces.darts import Darts
from epochzero.spaces.nb201 import NB201
from epochzero.supernet.base import AfterStep, Found, State, methods, resumed, settings_of
from epochzero.supernet.gumbel import hardened, noise, straight_through
from epochzero.supernet.relaxed import Picks, Relaxed, relax
from epochzero.types import Origin


class Usual(NamedTuple):
    """Default settings in a space: those of the paper, unless better ones were measured."""

    steps: int = 100
    nu: str = "mean"
    without: str = ""
    cells: int = 0


OWN = Usual(steps=200, nu="adaptive", without="none", cells=1)
"""on NAS-Bench-201, of which the paper states none (docs/results.md, "Searches of NAS-Bench-201")"""
SAMPLED = 50
"""architectures of which the mean is taken for a fixed nu"""
UNBOUNDED = sys.float_info.max
"""nu that no s exceeds; unlike infinity it can be written as JSON"""


Factors = Mapping[str, float]
"""of a tensor's share in s, by its name; 1 for the others"""


def ntk_factors(relaxed: Relaxed) -> Factors:
    """1 / fan in for the weights of layers; biases and the parameters of norms have none."""
    params = relaxed.plan.weights.items()
    return {name: 1 / param.fan_in for name, param in params if param.fan_in and param.role == "weight"}


def trace_norm(
    relaxed: Relaxed,
    theta: Mapping[str, Tensor],
    weights: Sequence[Tensor],
    x: Tensor,
    y: Tensor,
    factors: Factors = MappingProxyType({}),
) -> Tensor:
    """S of the network that weights of zero and one sample."""
    leaves = {name: theta[name].detach().requires_grad_() for name in relaxed.sampled(weights)}
    loss = label_loss(execute(relaxed.network(weights), {**theta, **leaves}, (x,)), y, "mean")
    return _squared(torch.autograd.grad(loss, list(leaves.values())), list(leaves), factors)


def _squared(gradients: Sequence[Tensor], names: Sequence[str], factors: Factors) -> Tensor:
    each = [gradient.square().sum() * factors.get(name, 1) for name, gradient in zip(names, gradients, strict=True)]
    return torch.stack(each).sum()


def sample(relaxed: Relaxed, logits: Sequence[Tensor], like: Tensor) -> list[Tensor]:
    """For each choice, ones at the options with the largest logits."""
    return [hardened(own, choice.draws).to(like) for own, choice in zip(logits, relaxed.choices, strict=True)]


def slope(
    relaxed: Relaxed,
    theta: Mapping[str, Tensor],
    logits: Sequence[Tensor],
    x: Tensor,
    y: Tensor,
    tau: float,
    factors: Factors = MappingProxyType({}),
) -> tuple[float, Tensor]:
    """S of the sampled network, and its gradient with respect to alpha, all choices one after the other."""
    s, by_weights = weight_slope(relaxed, theta, sample(relaxed, logits, x), x, y, factors)
    parts = [straight_through(own, w.cpu(), tau) for own, w in zip(logits, by_weights, strict=True)]
    return s, torch.cat(parts)


def weight_slope(
    relaxed: Relaxed,
    theta: Mapping[str, Tensor],
    weights: Sequence[Tensor],
    x: Tensor,
    y: Tensor,
    factors: Factors = MappingProxyType({}),
) -> tuple[float, list[Tensor]]:
    r"""S of the network that weights of zero and one sample, and its gradient with respect to them.

    At a node m = sum_o w_o f_o, dL/dw_o = dL/dm . f_o. While theta moves along 2 dL/dtheta, each tensor times its
    factor, any other derivative dL/dz changes at the rate ds/dz. With f_o' for the rate at which f_o changes then,

        ds/dw_o = ds/dm . f_o + dL/dm . f_o'

    So only the sampled network is differentiated; all options are run forward once, for f_o and f_o'.
    """
    names, plan = relaxed.sampled(weights), relaxed.network(weights, shifted=True)
    leaves = {name: theta[name].detach().requires_grad_() for name in names}
    nodes = [plan.nodes[i] for i in plan.inputs[1:]]
    shifts = [x.new_zeros(()).expand(len(x), *node.shape).requires_grad_() for node in nodes]
    loss = label_loss(execute(plan, {**theta, **leaves}, (x, *shifts)), y, "mean")
    wanted = [*leaves.values(), *shifts]
    both = torch.autograd.grad(loss, wanted, create_graph=True, allow_unused=True, materialize_grads=True)
    gradients, of_loss = both[: len(names)], both[len(names) :]
    s = _squared(gradients, names, factors)
    of_s = torch.autograd.grad(s, shifts, allow_unused=True, materialize_grads=True)
    at = {node.name: (a.detach(), b.detach()) for node, a, b in zip(nodes, of_s, of_loss, strict=True)}
    slopes = {
        i: torch.zeros_like(w, dtype=torch.float64) for i, w in zip(relaxed.plan.inputs[1:], weights, strict=True)
    }

    def weigh(node: Node, inputs: tuple[Tensor, ...], _: Tensor) -> None:
        if node.name not in at:
            return
        of_s, of_loss = at[node.name]
        first = node.op.index if isinstance(node.op, Scaled) else 0
        for option, (source, term) in enumerate(zip(node.inputs[1:], inputs[1:], strict=True), start=first):
            if relaxed.plan.nodes[source].op.kind == "zero":
                continue
            value, change = forward_ad.unpack_dual(term)  # type: ignore[no-untyped-call]
            product = of_s * value
            if change is not None:
                product.addcmul_(of_loss, change)
            slopes[node.inputs[0]][option] += product.sum()

    with torch.no_grad(), forward_ad.dual_level():
        moved = {
            name: forward_ad.make_dual(theta[name], 2 * factors.get(name, 1) * gradient)  # type: ignore[no-untyped-call]
            for name, gradient in zip(names, gradients, strict=True)
        }
        execute(relaxed.selected(weights), {**theta, **moved}, (x, *weights), weigh)
    return float(s.detach()), list(slopes.values())


def fresh(count: int, nu: float | None) -> State:
    """The state before the first step, for this number of options in all; without a number nu is adaptive."""
    return {"sum": [0.0] * count, "largest": 0.0, "fixed": nu, "mean": [], "s": [], "nu": []}


def stepped(now: Any, s: float, of_s: Tensor, mu: float, nu0: float) -> State:
    """The state after one more network, of s and its gradient: equations (13), (18) and (41)."""
    t, total = now["step"] + 1, torch.tensor(now["sum"], dtype=torch.float64)
    nu = (nu0 + sum(now["s"])) / t if now["fixed"] is None else now["fixed"]
    gradient = of_s * (1 - mu * (s > nu))
    largest = max(now["largest"], float(gradient.norm()))
    total = total + gradient / largest if largest else total
    after = {"step": t, "sum": total.tolist(), "largest": largest, "s": [*now["s"], s], "nu": [*now["nu"], nu]}
    return {**now, **after}


def alpha(now: Any) -> Tensor:
    """The mean of the steps so far, all choices one after the other."""
    total = torch.tensor(now["sum"], dtype=torch.float64)
    return total / int(now["step"])


def most_probable(relaxed: Relaxed, barred: Tensor, alpha: Tensor) -> Any:
    """The architecture with the largest alpha that is not cut in two, ties to the first; what is barred is not chosen.

    UserError where all are cut.
    """
    allowed = split(relaxed, alpha.masked_fill(barred, -math.inf))
    for picks in _by_probability(relaxed, allowed):
        if relaxed.connects(picks):
            return relaxed.decode(picks)
    raise UserError("Every network that NASI may choose here is cut in two: leave out less.")


def _by_probability(relaxed: Relaxed, alpha: Sequence[Tensor]) -> Iterator[Picks]:
    """All architectures, those with the largest sum of alpha first; options at minus infinity are not picked."""
    ranked = [_ranked(own.tolist(), choice.picks) for choice, own in zip(relaxed.choices, alpha, strict=True)]
    waiting = [
        (0.0, (0,) * len(ranked))
    ]  # how much less than the best they weigh, and the place of each choice's picks
    while waiting:
        _, places = heapq.heappop(waiting)
        chosen = [own[place] for own, place in zip(ranked, places, strict=True)]
        yield {choice.name: picks for choice, (_, picks) in zip(relaxed.choices, chosen, strict=True)}
        last = max((i for i, place in enumerate(places) if place), default=0)
        for i in range(last, len(places)):  # each is reached once: from what it is with its last place one better
            moved = (*places[:i], places[i] + 1, *places[i + 1 :])
            if moved[i] < len(ranked[i]):
                less = sum(own[0][0] - own[place][0] for own, place in zip(ranked, moved, strict=True))
                heapq.heappush(waiting, (less, moved))


def _ranked(alpha: Sequence[float], picks: int) -> list[tuple[float, tuple[int, ...]]]:
    """Returns all sets of `picks` options with their sums, the largest sum first."""
    order = sorted((i for i, own in enumerate(alpha) if own > -math.inf), key=lambda i: -alpha[i])
    sums = ((sum(alpha[i] for i in some), some) for some in combinations(order, picks))
    return sorted(sums, key=lambda one: -one[0])


def split(relaxed: Relaxed, vector: Tensor) -> list[Tensor]:
    """Of all choices one after the other, the part of each."""
    return list(torch.split(vector, [len(choice.options) for choice in relaxed.choices]))


def bar(relaxed: Relaxed, names: str) -> Tensor:
    """Which options, all choices one after the other, are left out; UserError where that leaves too few."""
    barred = {name.strip() for name in names.split(",") if name.strip()}
    for choice in relaxed.choices:
        if len(set(choice.options) - barred) < max(choice.draws, choice.picks):
            raise UserError(f"NASI cannot choose '{choice.name}' without {names}: leave out less.")
    if unknown := barred.difference(*(choice.options for choice in relaxed.choices)):
        raise UserError(f"NASI cannot leave out what is not there: {', '.join(sorted(unknown))}.")
    return torch.tensor([option in barred for choice in relaxed.choices for option in choice.options])


def paper(space: Any) -> tuple[float, float]:
    """Mu and nu0 as in the paper."""
    return (2.0, 500.0) if isinstance(space, Darts) else (1.0, 1000.0)


def number(option: str, text: str) -> float:
    """A finite number, and for nu, where infinity stands for no bound, the largest there is."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if option == "nu" and value == math.inf:
        return UNBOUNDED
    if not math.isfinite(value):
        also = {"nu": "'usual', 'mean', 'adaptive' or "}.get(option, "'paper' or ")
        raise UserError(f"NASI takes {also}a number for '{option}', not {text!r}.")
    return value


@methods.registers("nasi")
class Nasi:
    """NASI on a space that has a relaxed network."""

    steps = 100
    """those of the paper; a space may have its own"""

    @dataclass(frozen=True)
    class Options:
        nu: str = "usual"
        nu0: str = "paper"
        mu: str = "paper"
        labels: str = "true"
        data: str = "true"
        without: str = "usual"
        tau: float = 1.0
        init: str = "lecun"
        parameters: str = "standard"
        channels: int = 16
        cells: int = 0

    def __init__(
        self, space: Any, batch: Batch, seed: int = 0, device: str = "cpu", options: Options = Options()
    ) -> None:
        for option, value in (("labels", options.labels), ("data", options.data)):
            if value not in ("true", "random"):
                raise UserError(f"NASI takes 'true' or 'random' for '{option}', not {value!r}.")
        if not 0 < options.tau < math.inf or options.channels < 2 or options.channels % 2 or options.cells < 0:
            raise UserError(
                "NASI needs tau above 0, an even number of channels and a number of cells that is 0 or more, "
                f"not {options.tau}, {options.channels} and {options.cells}."
            )
        if options.parameters not in ("standard", "ntk"):
            raise UserError(f"NASI takes 'standard' or 'ntk' for 'parameters', not {options.parameters!r}.")
        mu, nu0 = paper(space)
        self.mu = mu if options.mu == "paper" else number("mu", options.mu)
        self.nu0 = nu0 if options.nu0 == "paper" else number("nu0", options.nu0)
        own = OWN if isinstance(space, NB201) else Usual()
        nu = own.nu if options.nu == "usual" else options.nu
        self.nu: str | float = nu if nu in ("mean", "adaptive") else number("nu", nu)
        without = {"usual": own.without, "nothing": ""}.get(options.without, options.without)
        options = replace(options, without=without, cells=options.cells or own.cells)
        self.steps, self.space, self.batch, self.seed, self.tau = own.steps, space, batch, seed, options.tau
        self.labels, self.data = options.labels, options.data
        self.device = torch.device(device)
        self.relaxed = relax(space, batch.num_classes, batch.input_shape, options.channels, options.cells)
        self.barred = bar(self.relaxed, without)
        self.factors = ntk_factors(self.relaxed) if options.parameters == "ntk" else {}
        self.theta = draw(self.relaxed.plan.weights, Origin(options.init, seed), self.device)
        numbers: State = {"nu": self.nu, "nu0": self.nu0, "mu": self.mu}
        self.settings = settings_of("nasi", space, batch, seed, **asdict(options) | numbers)

    @asked_precision()
    def run(self, steps: int, progress: AfterStep | None = None, state: State | None = None) -> Found:
        """Takes steps until there are `steps`, those of the state included."""
        show = progress or (lambda state: None)
        now: Any = resumed(state, self.settings, steps, fresh(len(self.barred), None))
        while self.nu == "mean" and len(now["mean"]) < SAMPLED:
            now = {**now, "mean": [*now["mean"], self.of_mean(len(now["mean"]) + 1)]}
            show(now)
        if self.nu != "adaptive":
            now["fixed"] = sum(now["mean"]) / SAMPLED if self.nu == "mean" else self.nu
        while now["step"] < steps:
            now = stepped(now, *self.measured(now["step"] + 1), self.mu, self.nu0)
            show(now)
        return self._found(now)

    def standing(self, state: State) -> str:
        """The most probable network so far; before the first step, of how many networks nu is known."""
        now: Any = state
        if not now["step"]:
            return f"nu from {len(now['mean'])} of {SAMPLED} networks"
        return str(self.space.text(most_probable(self.relaxed, self.barred, alpha(now))))

    def measured(self, t: int) -> tuple[float, Tensor]:
        """S of the network of step t and its gradient in alpha, which depend on neither nu nor mu."""
        given = self._logits("sample", t), *self._data(t)
        return slope(self.relaxed, self.theta, *given, tau=self.tau, factors=self.factors)

    def of_mean(self, i: int) -> float:
        """S of the i-th network of equation (40), counted from 1."""
        x, y = self._data(i)
        weights = sample(self.relaxed, self._logits("mean", i), x)
        return float(trace_norm(self.relaxed, self.theta, weights, x, y, self.factors))

    def _logits(self, purpose: str, t: int) -> list[Tensor]:
        """alpha_0 = 0 with Gumbel noise, for each choice; minus infinity for options that are left out."""
        drawn = noise(len(self.barred), generator(self.seed, "nasi", purpose, t))
        return split(self.relaxed, drawn.masked_fill(self.barred, -math.inf))

    def _data(self, t: int) -> tuple[Tensor, Tensor]:
        """The batch of step t; the parts of the data come in turn."""
        x, y = self.batch.part((t - 1) % self.batch.parts)
        if self.data == "random":
            x = torch.randn(x.shape, generator=generator(self.seed, "nasi", "data", t))
        if self.labels == "random":
            y = torch.randint(self.batch.num_classes, (len(x),), generator=generator(self.seed, "nasi", "labels", t))
        if y is None:
            raise DataError("NASI needs labels, and these data have none: use the option labels=random.")
        x = x.to(self.device)
        if runs_faster_channels_last(x):
            x = x.contiguous(memory_format=torch.channels_last)
        return x, y.to(self.device)

    def _found(self, now: Any) -> Found:
        logits = alpha(now)
        weights = {
            choice.name: dict(zip(choice.options, own.tolist(), strict=True))
            for choice, own in zip(self.relaxed.choices, split(self.relaxed, logits), strict=True)
        }
        trajectory = {"s": now["s"], "nu": now["nu"]}
        return Found(most_probable(self.relaxed, self.barred, logits), now["step"], trajectory, weights, now)
