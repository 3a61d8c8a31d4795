"""Which part of NASRec's supernet a step of training runs: the whole at first, then ever smaller paths.

With a probability that falls from 1 to 0 over the first steps, what all blocks read is everything before them; and with
the same probability, each block by itself has all its ops at full size. Otherwise, by the strategy:

    strategy       what a block reads                                  what a block is
    default        1 + Bin(min(n, 4) - 1, 1/2) of n earlier outputs    one op of each kind
    any-path       the same                                            1 + Bin(k - 1, 1/2) of the k ops of each kind
    single-path    one                                                 one op of each kind
    full-path      everything                                          everything

Sizes, merging and FM are drawn uniformly; left and right are one output each.

Zhang, Cheng, et al. NASRec: weight sharing neural architecture search for recommender systems. WWW 2023.
arXiv:2207.07187
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

from epochzero.errors import UserError
from epochzero.recommend.spaces.nasrec import MOST, Choices, Nasrec
from epochzero.recommend.spaces.nasrec_network import Block
from epochzero.recommend.supernet.weights import full_path

T = TypeVar("T")
STRATEGIES = ("default", "any-path", "single-path", "full-path")


def check_strategy(strategy: str) -> None:
    if strategy not in STRATEGIES:
        raise UserError(f"NASRec samples paths by {', '.join(STRATEGIES)}, not by {strategy!r}.")


def sampled_path(space: Nasrec, rng: Random, full: float, strategy: str = "default") -> Choices:
    """A path; `full` is the probability of the whole."""
    check_strategy(strategy)
    full = 1.0 if strategy == "full-path" else full
    reads_all = rng.random() < full
    found = []
    for number, every in enumerate(full_path(space), start=1):
        block = every if rng.random() < full else _part(space, rng, every, strategy)
        found.append(block if reads_all else _reading(rng, block, range(number), strategy))
    return tuple(found)


def _part(space: Nasrec, rng: Random, block: Block, strategy: str) -> Block:
    """The block with one op of each kind, or any of them, at any size."""
    draw = _some if strategy == "any-path" else _one
    return block._replace(
        dense_ops=draw(rng, space.dense_ops),
        sparse_ops=draw(rng, space.sparse_ops),
        width=rng.choice(space.widths),
        rows=rng.choice(space.rows),
        merge=rng.random() < 0.5,
        fm=rng.random() < 0.5,
    )


def _reading(rng: Random, block: Block, earlier: Sequence[int], strategy: str) -> Block:
    """The block reading some of the earlier outputs."""
    draw = _one if strategy == "single-path" else _some
    return block._replace(
        dense=draw(rng, earlier), sparse=draw(rng, earlier), left=_one(rng, earlier), right=_one(rng, earlier)
    )


def _one(rng: Random, items: Sequence[T]) -> tuple[T, ...]:
    return (rng.choice(items),)


def _some(rng: Random, items: Sequence[T]) -> tuple[T, ...]:
    """One or more, in their order."""
    count = 1 + sum(rng.random() < 0.5 for _ in range(min(len(items), MOST) - 1))
    chosen = sorted(rng.sample(range(len(items)), count))
    return tuple(items[i] for i in chosen)
