r"""Noise in place of data: a score needs no data set, and with 1/f noise it is close to that on images.

White noise is x ~ N(0, 1), independent everywhere. Pink noise is white noise n filtered so that the amplitude
of its spectrum decreases with the frequency, as in photographs:

    x = F^-1( a * F(n) ) / sqrt(mean a^2),    a(f) = 1 / |f|,    |f|^2 = f_y^2 + f_x^2

The mean of the image, f = 0, gets the amplitude of the frequency 1 / max(H, W). Every pixel has mean zero, and the
division gives it unit variance. The channels share most of an image: with white s and o_c,

    n_c = sqrt(r) s + sqrt(1 - r) o_c

correlates any two channels by r = 0.9.

Ids of words take the place of noise for language models: white ids are equally likely, and pink ones follow Zipf's law,
p(k) ~ 1 / (k + 1).

D. J. Field. Relations between the statistics of natural images and the response properties of cortical cells.
J. Opt. Soc. Am. A 4, 1987.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Generator, Tensor

from epochzero.data.batch import DEFAULT_CLASSES, Batch, Part, check_request, digest, shape_text
from epochzero.data.packed import Layout, Slot
from epochzero.errors import DataError
from epochzero.types import Shape

CHANNEL_CORRELATION = 0.9
RECIPE = 1
"""increases whenever the same request would give other numbers"""

Draw = Callable[[int, Shape, Generator], Tensor]
"""(samples, shape of one, generator) -> x [B, ...] float64"""


def pink(
    input_shape: Shape = (3, 32, 32),
    num_classes: int = DEFAULT_CLASSES,
    size: int = 64,
    parts: int = 4,
    seed: int = 0,
) -> Batch:
    """Returns 1/f noise with correlated channels, and random labels; a longer shape means several images per sample."""
    if len(input_shape) < 3:
        raise DataError(
            f"Pink noise makes images of shape [C, H, W], not samples of shape {list(input_shape)}: "
            "use white noise, which takes any shape."
        )
    what = f"1/f noise with channels correlated by {CHANNEL_CORRELATION},"
    return _noise("pink", what, _draw_pink, input_shape, num_classes, size, parts, seed)


def white(
    input_shape: Shape = (3, 32, 32),
    num_classes: int = DEFAULT_CLASSES,
    size: int = 64,
    parts: int = 4,
    seed: int = 0,
) -> Batch:
    """Returns samples of any shape of independent Gaussian noise, and random labels."""
    return _noise("white", "Gaussian white noise", _draw_white, input_shape, num_classes, size, parts, seed)


def ids(name: str, places: int, words: int, size: int = 64, parts: int = 4, seed: int = 0) -> Batch:
    """Returns rows of independent ids of words, "pink" or "white"."""
    check_request(words, size, parts, seed)
    if places < 1:
        raise DataError(f"A row cannot have {places} ids: it needs at least 1.")
    recipe = f"{name}-ids-{places}-{words}w-{size}-s{seed}"
    chance = {"pink": "by Zipf's law", "white": "all equally likely"}[name]
    return Batch(
        id=f"{recipe}-{digest(recipe, RECIPE)[:8]}",
        about=f"rows of {places} ids of {words} words, {chance}, seed {seed}.",
        input_shape=(places,),
        num_classes=words,
        size=size,
        parts=parts,
        make_part=partial(_make_ids, name=name, places=places, words=words, size=size, seed=seed),
        layout=Layout((Slot("", (places,), torch.int64),)),
    )


def _make_ids(index: int, *, name: str, places: int, words: int, size: int, seed: int) -> Part:
    key = digest(name, "ids", RECIPE, places, words, size, seed, index)
    generator = Generator().manual_seed(int(key[:8], 16))
    chances = 1 / torch.arange(1, words + 1, dtype=torch.float64) if name == "pink" else torch.ones(words)
    drawn = torch.multinomial(chances, size * places, replacement=True, generator=generator)
    return drawn.view(size, places).float(), None


def _noise(name: str, what: str, draw: Draw, shape: Shape, num_classes: int, size: int, parts: int, seed: int) -> Batch:
    check_request(num_classes, size, parts, seed)
    if not shape or min(shape) < 1:
        raise DataError(f"A sample cannot have the shape {list(shape)}: every axis needs at least 1 element.")
    shape = tuple(shape)
    recipe = f"{name}-{shape_text(shape)}-{num_classes}c-{size}-s{seed}"
    return Batch(
        id=f"{recipe}-{digest(recipe, RECIPE, CHANNEL_CORRELATION)[:8]}",
        about=f"{what} of shape {shape_text(shape)} with zero mean and unit variance, seed {seed}; "
        f"random labels of {num_classes} classes.",
        input_shape=shape,
        num_classes=num_classes,
        size=size,
        parts=parts,
        make_part=partial(_make_part, name=name, draw=draw, shape=shape, num_classes=num_classes, size=size, seed=seed),
    )


def _make_part(index: int, *, name: str, draw: Draw, shape: Shape, num_classes: int, size: int, seed: int) -> Part:
    """Returns one part from its own generator, independent of other parts, labels and global state.

    The arithmetic is in double precision, so that machines that round differently agree after the cast.
    """
    key = digest(name, RECIPE, shape_text(shape), size, seed, index)
    generator = Generator().manual_seed(int(key[:8], 16))
    x = draw(size, shape, generator).float()  # [B, ...]
    y = torch.randint(num_classes, (size,), generator=generator)  # [B]
    return x, y


def _draw_white(size: int, shape: Shape, generator: Generator) -> Tensor:
    return torch.randn(size, *shape, generator=generator, dtype=torch.float64)


def _draw_pink(size: int, shape: Shape, generator: Generator) -> Tensor:
    *several, C, H, W = shape
    noise = _draw_white(size * math.prod(several), (1 + C, H, W), generator)
    shared, own = noise[:, :1], noise[:, 1:]  # [B, 1, H, W], [B, C, H, W]
    mixed = math.sqrt(CHANNEL_CORRELATION) * shared + math.sqrt(1 - CHANNEL_CORRELATION) * own
    vertical = torch.fft.fftfreq(H, dtype=torch.float64)
    horizontal = torch.fft.fftfreq(W, dtype=torch.float64)
    frequency = torch.hypot(vertical[:, None], horizontal)  # [H, W]
    frequency[0, 0] = 1 / max(H, W)
    amplitude = 1 / frequency
    amplitude /= amplitude.square().mean().sqrt()
    x: Tensor = torch.fft.ifft2(amplitude * torch.fft.fft2(mixed)).real  # [B, C, H, W]
    return x.view(size, *shape)
