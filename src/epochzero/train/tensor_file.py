"""Tensors in safetensors files, which cannot run code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from epochzero.errors import DataError, UserError


def as_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """The content of a safetensors file."""
    try:
        from safetensors.torch import save
    except ImportError:
        raise UserError("Writing weights needs safetensors: pip install 'epochzero[export]'.") from None
    return save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file; DataError if it is damaged."""
    try:
        from safetensors.torch import load_file
    except ImportError:
        raise UserError("Reading .safetensors needs safetensors: pip install 'epochzero[export]'.") from None
    try:
        return load_file(path)
    except Exception:
        raise DataError(f"The weights '{path}' are damaged, cut short or not a safetensors file.") from None
