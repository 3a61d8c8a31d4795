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
    nu 100         a number
    nu adaptive    nu_t = (nu0 + sum of s before t) / t (41)

The paper has mu = 2, nu0 = 500 or nu = 100 and T = 100 on DARTS; mu = 1 and nu0 = 1000 on NAS-Bench-1Shot1. Widths and
initialisation set the scale of s, and it does not tell them in full, so the default is the mean. Weights are drawn from
N(0, 1/fan in), as those of the theory are in effect; norms use the batch's statistics.

Labels may be drawn at random, and so may the data (N(0, 1)). Options may be left out of every choice (`without`): the
paper leaves out `none` on DARTS, and does not say what it does on NAS-Bench-201. The most probable cell may be one that
is cut in two; without `none` it cannot.

Beware: deep chains of batch norms without a skip have gradients that explode, and s has a heavy tail. Below the bound
such a network outweighs all others, and the division by the largest gradient so far mutes what comes after it.

Shu, Cai, Dai, Ooi, Low. NASI: label- and data-agnostic neural architecture search at initialization. ICLR 2022.
arXiv:2109.00817
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from epochzero.data import Batch
from epochzero.engine import label_loss
from epochzero.engine.network import runs_faster_channels_last
from epochzero.errors import DataError, UserError
from epochzero.plan import execute, generator
from epochzero.plan.init import draw
from epochzero.spaces.darts import Darts
from epochzero.supernet.base import Found, Progress, State, methods, resumed
from epochzero.supernet.gumbel import hardened, noise, straight_through
from epochzero.supernet.relaxed import Relaxed, relax
from epochzero.types import Origin

SAMPLED = 50
"""architectures of which the mean is taken for a fixed nu"""


def trace_norm(
    relaxed: Relaxed, theta: Mapping[str, Tensor], weights: Sequence[Tensor], x: Tensor, y: Tensor, graph: bool = False
) -> Tensor:
    """S of the network that weights of zero and one sample; with `graph`, it can be differentiated in the weights."""
    leaves = {name: theta[name].detach().requires_grad_() for name in relaxed.sampled(weights)}
    plan, inputs = (relaxed.plan, (x, *weights)) if graph else (relaxed.network(weights), (x,))
    loss = label_loss(execute(plan, {**theta, **leaves}, inputs), y, "mean")
    gradients = torch.autograd.grad(loss, list(leaves.values()), create_graph=graph)
    return torch.stack([gradient.square().sum() for gradient in gradients]).sum()


def sample(relaxed: Relaxed, logits: Sequence[Tensor], like: Tensor) -> list[Tensor]:
    """For each choice, ones at the options with the largest logits."""
    return [hardened(own, choice.draws).to(like) for own, choice in zip(logits, relaxed.choices, strict=True)]


def slope(
    relaxed: Relaxed, theta: Mapping[str, Tensor], logits: Sequence[Tensor], x: Tensor, y: Tensor, tau: float
) -> tuple[float, Tensor]:
    """S of the sampled network, and its gradient with respect to alpha, all choices one after the other."""
    weights = [vector.requires_grad_() for vector in sample(relaxed, logits, x)]
    s = trace_norm(relaxed, theta, weights, x, y, graph=True)
    by_weights = torch.autograd.grad(s, weights, allow_unused=True, materialize_grads=True)
    parts = [straight_through(own, w.double().cpu(), tau) for own, w in zip(logits, by_weights, strict=True)]
    return float(s.detach()), torch.cat(parts)


@methods.registers("nasi")
class Nasi:
    """NASI on a space that has a relaxed network."""

    steps = 100

    def __init__(
        self,
        space: Any,
        batch: Batch,
        seed: int = 0,
        device: str = "cpu",
        *,
        nu: str = "mean",
        nu0: str = "paper",
        mu: str = "paper",
        labels: str = "true",
        data: str = "true",
        without: str = "",
        tau: float = 1.0,
        init: str = "lecun",
        channels: int = 16,
        cells: int = 0,
    ) -> None:
        for option, value in (("labels", labels), ("data", data)):
            if value not in ("true", "random"):
                raise UserError(f"NASI takes 'true' or 'random' for '{option}', not {value!r}.")
        if tau <= 0 or channels < 2 or channels % 2 or cells < 0:
            raise UserError(
                "NASI needs tau above 0, an even number of channels and a number of cells that is 0 or more, "
                f"not {tau}, {channels} and {cells}."
            )
        paper = (2.0, 500.0) if isinstance(space, Darts) else (1.0, 1000.0)
        self.mu = paper[0] if mu == "paper" else _number("mu", mu)
        self.nu0 = paper[1] if nu0 == "paper" else _number("nu0", nu0)
        self.nu: str | float = nu if nu in ("mean", "adaptive") else _number("nu", nu)
        self.batch, self.seed, self.tau = batch, seed, tau
        self.labels, self.data = labels, data
        self.device = torch.device(device)
        self.relaxed = relax(space, batch.num_classes, batch.input_shape, channels, cells)
        self._sizes = [len(choice.options) for choice in self.relaxed.choices]
        self._barred = self._bar(without)
        self.theta = draw(self.relaxed.plan.weights, Origin(init, seed), self.device)
        self._settings: State = {
            "method": "nasi",
            "space": space.name,
            "batch": batch.id,
            "parts": batch.parts,
            "seed": seed,
            "nu": self.nu,
            "nu0": self.nu0,
            "mu": self.mu,
            "labels": labels,
            "data": data,
            "without": without,
            "tau": tau,
            "init": init,
            "channels": channels,
            "cells": cells,
        }

    def run(self, steps: int, progress: Progress | None = None, state: State | None = None) -> Found:
        """Take steps until there are so many, those that the state counts included."""
        fresh: State = {"sum": [0.0] * sum(self._sizes), "largest": 0.0, "fixed": None, "s": [], "nu": []}
        now: Any = resumed(state, self._settings, steps, fresh)
        if now["fixed"] is None and self.nu != "adaptive":
            now["fixed"] = self._mean() if self.nu == "mean" else self.nu
        total = torch.tensor(now["sum"], dtype=torch.float64)
        while now["step"] < steps:
            t = now["step"] + 1
            nu = (self.nu0 + sum(now["s"])) / t if now["fixed"] is None else now["fixed"]
            s, of_s = slope(self.relaxed, self.theta, self._logits("sample", t), *self._data(t), tau=self.tau)
            gradient = of_s * (1 - self.mu * (s > nu))
            largest = max(now["largest"], float(gradient.norm()))
            total = total + gradient / largest if largest else total
            now = {
                **now,
                "step": t,
                "sum": total.tolist(),
                "largest": largest,
                "s": [*now["s"], s],
                "nu": [*now["nu"], nu],
            }
            if progress is not None:
                progress(now)
        return self._found(now, torch.split(total / now["step"], self._sizes))

    def _mean(self) -> float:
        """Nu of equation (40)."""
        found = []
        for i in range(1, SAMPLED + 1):
            x, y = self._data(i)
            weights = sample(self.relaxed, self._logits("mean", i), x)
            found.append(float(trace_norm(self.relaxed, self.theta, weights, x, y)))
        return sum(found) / len(found)

    def _logits(self, purpose: str, t: int) -> list[Tensor]:
        """alpha_0 = 0 with Gumbel noise, for each choice; minus infinity for options that are left out."""
        drawn = noise(len(self._barred), generator(self.seed, "nasi", purpose, t))
        return list(torch.split(drawn.masked_fill(self._barred, -math.inf), self._sizes))

    def _bar(self, names: str) -> Tensor:
        """Which options, all choices one after the other, are left out; UserError where that leaves too few."""
        barred = {name.strip() for name in names.split(",") if name.strip()}
        for choice in self.relaxed.choices:
            if len(set(choice.options) - barred) < max(choice.draws, choice.picks):
                raise UserError(f"NASI cannot choose '{choice.name}' without {names}: leave out less.")
        if unknown := barred.difference(*(choice.options for choice in self.relaxed.choices)):
            raise UserError(f"NASI cannot leave out what is not there: {', '.join(sorted(unknown))}.")
        return torch.tensor([option in barred for choice in self.relaxed.choices for option in choice.options])

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

    def _found(self, now: Any, alpha: Sequence[Tensor]) -> Found:
        choices = self.relaxed.choices
        allowed = torch.split(torch.cat(list(alpha)).masked_fill(self._barred, -math.inf), self._sizes)
        picks = {
            choice.name: tuple(of_choice.argsort(descending=True, stable=True)[: choice.picks].tolist())
            for choice, of_choice in zip(choices, allowed, strict=True)
        }
        weights = {
            choice.name: dict(zip(choice.options, of_choice.tolist(), strict=True))
            for choice, of_choice in zip(choices, alpha, strict=True)
        }
        trajectory = {"s": now["s"], "nu": now["nu"]}
        return Found(self.relaxed.decode(picks), now["step"], trajectory, weights, now)


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        also = {"nu": "'mean', 'adaptive' or "}.get(option, "'paper' or ")
        raise UserError(f"NASI takes {also}a number for '{option}', not {text!r}.") from None
