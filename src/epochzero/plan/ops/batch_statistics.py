r"""Batch norm on the batch's own statistics, with a fast second derivative.

    y  = xh w + b            xh = (x - mean) r,  r = 1/sqrt(var + eps), over the m values of a channel
    gx = w r P(gy)           P(v) = v - mean(v) - xh mean(v xh)
    gw = sum gy xh,   gb = sum gy

GraSP differentiates gx once more. For a cotangent u of gx, with a = mean(u xh), c = mean(gy xh) and
s = sum(u gy) - m (mean(u) mean(gy) + a c):

    d/dgy = w r P(u)
    d/dx  = -w r^2 [ c u + a gy - c mean(u) - a mean(gy) + (s/m - 2 a c) xh ]
    d/dw  = r s

Torch's own second derivative takes some sixty passes over the activations; this takes about fifteen. Values and first
derivatives come from torch's kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from epochzero.plan.ops.base import Gradients, signed


def batch_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """Computes batch norm as in training, without tracking; can be differentiated twice."""
    check(x.numel() // x.shape[1], x.shape)
    y: Tensor = _Forward.apply(x, weight, bias, eps)  # type: ignore[no-untyped-call]
    return y


def recorded_batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Callable[..., tuple[Gradients, Gradients]]]:
    """Returns the output and its backward pass (see `epochzero.plan.ops.base.Back`)."""
    check(x.numel() // x.shape[1], x.shape)
    y, mean, rstd = torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, eps)

    def back(
        gradient: Tensor, inputs: Sequence[bool], params: Sequence[bool], rectified: bool
    ) -> tuple[Gradients, Gradients]:
        assert not rectified
        affine = params[:2] if weight is not None else (False, False)
        of_x, *of_affine = torch.ops.aten.native_batch_norm_backward(
            gradient, x, weight, None, None, mean, rstd, True, eps, [inputs[0], *affine]
        )
        return [of_x], [*of_affine, None, None] if weight is not None else [None, None]

    return y, back


def check(values: int, shape: Sequence[int]) -> None:
    """Raises ValueError unless there are several values for each channel."""
    if values == 1:
        raise ValueError(f"a batch norm needs more than one value for each channel, and got {list(shape)}")


class _Forward(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
        y, mean, rstd = torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, eps)
        ctx.save_for_backward(x, weight, mean, rstd)
        ctx.save_for_forward(x, weight, mean, rstd)
        ctx.eps = eps
        return y

    @staticmethod
    def jvp(ctx: Any, dx: Tensor | None, dw: Tensor | None, db: Tensor | None, _: None) -> Tensor:
        """Uses torch's gradient: P is its own transpose."""
        x, weight, mean, rstd = ctx.saved_tensors
        wide = (1, -1) + (1,) * (x.dim() - 2)
        dy = torch.zeros_like(x)
        if dx is not None:
            scale = torch.ones_like(mean) if weight is None else weight
            dy, _, _ = torch.ops.aten.native_batch_norm_backward(
                dx, x, scale, None, None, mean, rstd, True, ctx.eps, [True, False, False]
            )
        if dw is not None:
            dy = dy.addcmul((x - mean.view(wide)) * rstd.view(wide), dw.view(wide))
        return dy if db is None else dy + db.view(wide)

    @staticmethod
    def backward(ctx: Any, gy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, rstd = ctx.saved_tensors
        gx, gw, gb = _Backward.apply(gy, x, weight, mean, rstd, ctx.eps)  # type: ignore[no-untyped-call]
        return gx, gw if weight is not None else None, gb if ctx.needs_input_grad[2] else None, None


class _Backward(Function):
    @staticmethod
    @signed
    def forward(
        gy: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor, rstd: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        scale = torch.ones_like(mean) if weight is None else weight  # a GPU gives no sums without one
        gradients: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.native_batch_norm_backward(
            gy, x, scale, None, None, mean, rstd, True, eps, [True, True, True]
        )
        return gradients

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG004
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:5])

    @staticmethod
    def vmap(
        info: Any,  # noqa: ARG004
        in_dims: tuple[int | None, ...],
        gy: Tensor,
        x: Tensor,
        weight: Tensor | None,
        mean: Tensor,
        rstd: Tensor,
        eps: float,  # noqa: ARG004
    ) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[int, int, int]]:
        """Takes many gradients of the same values, the rows of a tangent kernel."""
        if in_dims[0] is None or any(dim is not None for dim in in_dims[1:]):
            raise NotImplementedError("only gradients of one batch of values are batched")
        wide = (1, -1) + (1,) * (x.dim() - 2)
        r = rstd.view(wide)
        xh = (x - mean.view(wide)) * r  # [B, C, H, W]
        axes = [1, *range(3, x.dim() + 1)]
        gy = gy.movedim(in_dims[0], 0)  # [R, B, C, H, W]
        m = x.numel() // x.shape[1]
        gb = gy.sum(axes)  # [R, C]
        gw = (gy * xh).sum(axes)
        spread = (len(gy), *wide)
        wr = r if weight is None else r * weight.view(wide)
        gx = (gy - (gb / m).view(spread)).addcmul_(xh, (gw / m).view(spread), value=-1).mul_(wr)
        return (gx, gw, gb), (0, 0, 0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, u: Tensor | None, uw: Tensor | None, ub: Tensor | None) -> tuple[Tensor | None, ...]:
        gy, x, weight, mean, rstd = ctx.saved_tensors
        wide = (1, -1) + (1,) * (x.dim() - 2)
        axes = [0, *range(2, x.dim())]
        m = x.numel() // x.shape[1]
        r = rstd.view(wide)  # [1, C, 1, 1]
        wr = r if weight is None else r * weight.view(wide)
        xh = (x - mean.view(wide)).mul_(r)  # [B, C, H, W]

        def means(values: Tensor) -> Tensor:
            return values.mean(axes, keepdim=True)  # [1, C, 1, 1]

        g_mean, c = means(gy), means(gy * xh)
        d_gy: Tensor | None = None
        d_x: Tensor | None = None
        d_w: Tensor | None = None
        if u is not None:
            u_mean, a = means(u), means(u * xh)
            s = means(u * gy) - u_mean * g_mean - a * c  # [1, C, 1, 1], divided by m
            d_gy = (u - u_mean).addcmul_(xh, a, value=-1).mul_(wr)
            d_x = (xh * (s - 2 * a * c) - (c * u_mean + a * g_mean)).addcmul_(u, c).addcmul_(gy, a)
            d_x.mul_(-wr * r)
            d_w = (s * r * m).flatten()
        if uw is not None:
            scale = uw.view(wide)
            d_gy = xh * scale if d_gy is None else d_gy.addcmul_(xh, scale)
            along = (gy - g_mean).addcmul_(xh, c, value=-1).mul_(r * scale)
            d_x = along if d_x is None else d_x.add_(along)
        if ub is not None:
            shift = ub.view(wide)
            d_gy = shift.expand_as(gy) if d_gy is None else d_gy.add_(shift)
        return d_gy, d_x, None if weight is None else d_w, None, None, None
