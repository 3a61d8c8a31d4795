"""Checks of an op: of what it says about itself, and that it is one function in every form.

    check_op(Conv(4, 3, padding=1), (3, 8, 8))          one input, of this shape for one sample
    check_op(Add(), (4, 5), (4, 5), seed=7)             two inputs, other random numbers and plans

The op runs in double precision, alone and in small random plans, by itself and in populations. It may lack second
derivatives along a curve, or a printed form; then it has to say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from epochzero import data
from epochzero.engine import Pass, PlanNetwork
from epochzero.engine.failure import REASONS
from epochzero.engine.passes import Item
from epochzero.engine.population.joint_run import run_together
from epochzero.engine.population.population import Population
from epochzero.engine.single.run import run_pass
from epochzero.plan import SCHEMES
from epochzero.plan.init import draw
from epochzero.plan.ops.base import Op, Param
from epochzero.testing import networks
from epochzero.testing.op_plans import CLASSES, SAMPLES, WIDTH, Case, apart, around, noise
from epochzero.types import Origin, Shape

LONGEST_LABEL = 20
REL = 1e-8
"""largest error of double precision, relative to the largest number"""


def check_op(op: Op, *inputs: Shape, feed: Sequence[Op | None] = (), seed: int = 0) -> None:
    """Run every check of this file on one op with inputs of these shapes.

    `feed` holds for each input an op that makes it from one of that shape, or None: `Embedding`, say, takes ids, which
    `Ids` makes from any numbers.
    """
    check_value(op)
    case = Case.of(op, inputs, feed, seed)
    check_shape_and_params(case)
    check_run_is_pure(case)
    check_cost(case)
    check_samples_are_apart(case)
    check_linear(case)
    check_curve(case)
    check_recorded(case)
    check_memory_formats(case)
    check_drawing(case)
    check_printed(case)
    for blocks in (False, True):
        check_op_in_populations(case, blocks)


# Facts of the op


def check_value(op: Op) -> None:
    """An op is a value: plans are merged by comparing and hashing their ops."""
    try:
        hash(op)
    except TypeError as error:
        raise AssertionError(f"{op} cannot be hashed ({error}): make it a frozen dataclass of plain values") from error
    for name in getattr(type(op), "__dataclass_fields__", {}):
        try:
            setattr(op, name, getattr(op, name))
        except (AttributeError, TypeError):
            continue
        raise AssertionError(f"{op} lets '{name}' be set: make it a frozen dataclass")


def check_shape_and_params(case: Case) -> None:
    """The output has the shape that `shape` says, and parameters are drawn in the shapes that `params` says."""
    shape, out = case.op.shape(*case.given), case.run()
    assert out.shape == (SAMPLES, *shape), f"{case.op} says {shape}, and gives {tuple(out.shape[1:])} for each sample"
    assert bool(out.isfinite().all()), f"{case.op} gives numbers that are not finite for ordinary inputs"
    for name, param in case.op.params(*case.given).items():
        assert isinstance(param, Param) and name.isidentifier(), f"{case.op} has no parameter called {name!r}"
    params = around(case, alone=True).weights
    for scheme in SCHEMES:
        try:
            finite = all(bool(tensor.isfinite().all()) for tensor in draw(params, Origin(scheme)).values())
        except (ArithmeticError, RuntimeError, TypeError) as error:
            raise AssertionError(
                f"the parameters of {case.op} cannot be drawn by the scheme {scheme} ({error}): "
                "weights and biases need their fan_in and fan_out"
            ) from error
        assert finite, f"the parameters of {case.op} are not finite when they are drawn by the scheme {scheme}"


def check_run_is_pure(case: Case) -> None:
    """Running twice gives the same, and leaves inputs, parameters and torch's random state alone."""
    before = [tensor.clone() for tensor in (*case.x, *case.w)]
    state = torch.random.get_rng_state()
    first, second = case.run().clone(), case.run()
    same = all(torch.equal(one, other) for one, other in zip(before, (*case.x, *case.w), strict=True))
    assert same, f"{case.op} changes its inputs or parameters when it runs"
    assert torch.equal(state, torch.random.get_rng_state()), f"{case.op} moves torch's global random state"
    assert torch.equal(first, second), f"{case.op} gives another output when it runs again"


def check_cost(case: Case) -> None:
    """The multiply-accumulates are half of what torch counts, where torch counts anything."""
    macs = case.op.macs(*case.given)
    assert macs == int(macs) >= 0, f"{case.op} says {macs} multiply-accumulates: a whole number from 0 up"
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        case.run()
    counted = counter.get_total_flops() / 2 / SAMPLES
    assert counted in (0, macs), f"{case.op} says {macs} multiply-accumulates, and torch counts {counted:g}"


def check_samples_are_apart(case: Case) -> None:
    """A sample's output does not depend on the other samples, unless the op says so."""
    if case.op.mixes_samples:
        return
    one_by_one = torch.cat([case.run([x[i : i + 1] for x in case.x]) for i in range(SAMPLES)])
    assert apart(one_by_one, case.run()) < REL, (
        f"{case.op} mixes the samples of a batch, and `mixes_samples` is not set"
    )


def check_linear(case: Case) -> None:
    """An op that says that it is linear is, but for the bias that `unbiased` leaves out."""
    if not case.op.linear:
        return
    rng = torch.Generator().manual_seed(case.seed + 2)
    other, flat = [noise(rng, *x.shape) for x in case.x], case.op.unbiased(case.w)
    both = [2 * x + 3 * y for x, y in zip(case.x, other, strict=True)]
    straight = apart(case.run(both, flat), 2 * case.run(w=flat) + 3 * case.run(other, flat)) < REL
    assert straight, f"{case.op} says that it is linear in its inputs, and is not"
    moved, unmoved = case.run() - case.run(other), case.run(w=flat) - case.run(other, flat)
    assert apart(moved, unmoved) < REL, f"{case.op} without its bias (`unbiased`) is another map than with it"


# Derivatives


def check_curve(case: Case) -> None:
    """`jet` gives the derivatives along a curve that autograd gives; or it says that there are none."""
    curves = case.moving()
    try:
        value, velocity, acceleration = case.op.jet(tuple(curves), case.w)
    except NotImplementedError as error:
        assert str(error), f"{case.op} has no `jet` and does not say so: raise NotImplementedError with a reason"
        return
    assert apart(value, case.run()) < REL, f"the value of `jet` of {case.op} is not that of `run`"
    t = torch.zeros((), dtype=torch.float64, requires_grad=True)
    along = case.run([x + t * v + t * t / 2 * a if x.is_floating_point() else x for x, v, a in curves])
    signs = noise(torch.Generator().manual_seed(case.seed + 3), *along.shape)
    first = _slope((along * signs).sum(), t)
    assert apart(first, (velocity * signs).sum()) < REL, f"the first derivative of `jet` of {case.op} is not autograd's"
    try:
        second = _slope(first, t)
    except RuntimeError:
        return  # autograd goes no further, and says so itself where it is asked
    scale = acceleration.abs().sum() + 1e-6
    off = float((second - (acceleration * signs).sum()).detach().abs() / scale)
    assert off < REL, f"the second derivative of `jet` of {case.op} is not autograd's"


def _slope(of: Tensor, t: Tensor) -> Tensor:
    """The derivative, with its graph; zero where nothing depends on t."""
    if not of.requires_grad:
        return torch.zeros_like(t)
    (slope,) = torch.autograd.grad(of, t, create_graph=True, allow_unused=True)
    return torch.zeros_like(t) if slope is None else slope


def check_recorded(case: Case) -> None:
    """An op's own way back, where it has one, gives the gradients that autograd gives."""
    with torch.no_grad():
        recorded = case.op.recorded(case.x, case.w)
    if recorded is None:
        return
    out, back = recorded
    assert apart(out, case.run()) < REL, f"{case.op} gives another output when it is recorded"
    x = [one.clone().requires_grad_() for one in case.x]
    trained = [param.trainable for param in case.op.params(*case.given).values()]
    w = [one.clone().requires_grad_(follow) for one, follow in zip(case.w, trained, strict=True)]
    gradient = noise(torch.Generator().manual_seed(case.seed + 4), *out.shape)
    leaves = [*x, *(one for one in w if one.requires_grad)]
    expected = torch.autograd.grad(case.run(x, w), leaves, gradient)
    of_inputs, of_params = back(gradient, [True] * len(x), trained, False)
    given = [*of_inputs, *(one for one, follow in zip(of_params, trained, strict=True) if follow)]
    for one, other in zip(given, expected, strict=True):
        assert one is not None and apart(one, other) < REL, f"the recorded way back of {case.op} is not autograd's"


def check_memory_formats(case: Case) -> None:
    """Channels may lie last in memory."""
    turned = [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in case.x]
    assert apart(case.run(turned), case.run()) < REL, f"{case.op} gives another output where channels lie last"


# Other forms


def check_drawing(case: Case) -> None:
    """Drawings name it in a few characters."""
    label, plan = case.op.label(), around(case, alone=True)
    assert 0 < len(label) <= LONGEST_LABEL, (
        f"{case.op} has the label {label!r}: it takes 1 to {LONGEST_LABEL} characters"
    )
    assert len(label) == 1 or label in plan.drawn(), f"drawings do not show the label {label!r} of {case.op}"
    assert "<svg" in plan.svg()


def check_printed(case: Case) -> None:
    """Printed code does the same, parameter by parameter; or it says that there is none."""
    plan = around(case, alone=True)
    try:
        printed, ours = networks.printed(plan), plan.module().double()
    except Exception as error:
        raise AssertionError(f"the printed code of {case.op} raises {type(error).__name__}: {error}") from error
    if printed is None:
        return
    printed.double()
    printed_state, our_state = printed.state_dict(), ours.state_dict()
    wanted = {name: tensor.shape for name, tensor in our_state.items()}
    shapes = {name: tensor.shape for name, tensor in printed_state.items() if "num_batches_tracked" not in name}
    assert shapes == wanted, f"the printed code of {case.op} has the parameters {shapes}, and the op {wanted}"
    printed.load_state_dict(our_state, strict=False)
    inputs = _inputs(case)
    for training in (True, False):
        one, other = (module.train(training)(*inputs).detach() for module in (ours, printed))
        assert apart(one, other) < REL, f"the printed code of {case.op} gives another output"


def _inputs(case: Case) -> list[Tensor]:
    rng = torch.Generator().manual_seed(case.seed)
    return [2 * noise(rng, SAMPLES, *shape) for shape in case.shapes]


# Populations


def check_op_in_populations(case: Case, blocks: bool, networks: int = 3) -> None:
    """In random plans around the op, networks of a population give what each gives alone: outputs and gradients.

    With `blocks`, the plans have a skeleton in common and are merged block by block, else node by node.
    """
    rng = Random(f"{case.op}/{case.seed}/{blocks}")
    plans = [around(case, rng, blocks=blocks) for _ in range(networks)]
    batch = data.white((WIDTH,), CLASSES, size=SAMPLES, parts=1)
    for run, reads in READS.items():
        items: list[Item] = [
            *((name, None) for name in reads),
            *([("layers", squares)] if run.inputs != "circle" else []),
        ]
        members = [PlanNetwork(plan) for plan in plans]
        alone = [run_pass(run, items, member, batch, case.seed) for member in members]
        try:
            columns = run_together(run, items, Population(members), batch, case.seed)
        except REASONS as error:
            refused = all(isinstance(own[item], Exception) for own in alone for item in items if item[1] is None)
            assert refused, f"a population with {case.op} cannot run: {error}"
            continue
        except Exception as error:
            raise AssertionError(f"a population with {case.op} raises {type(error).__name__}: {error}") from error
        for p, own in enumerate(alone):
            for item in items:
                assert _alike(own[item], columns.read(item, p)), (
                    f"with {case.op} in its plan, the {item[0]} of a network are others in a population than alone"
                )


READS: dict[Pass, tuple[str, ...]] = {
    Pass(dtype="float64"): (
        *("logits", "loss", "weights", "gradients", "hessian_gradients", "parameters", "parameter_gradients"),
        *("input_gradients", "kernel_sum"),
    ),
    Pass(inputs="circle", dtype="float64"): ("logits", "velocity", "acceleration"),
}
"""passes that are compared, and what of them"""


def squares(output: Tensor) -> Tensor:
    return output.square().sum()


def _alike(one: Any, other: Any) -> bool:
    """Equal but for rounding; reasons why there is nothing are equal where they say the same."""
    if isinstance(one, Exception) or isinstance(other, Exception):
        return str(one) == str(other)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, Tensor):
        return one.shape == other.shape and (apart(one, other) < REL or float((one - other).abs().max()) < 1e-12)
    return bool(one == other)
