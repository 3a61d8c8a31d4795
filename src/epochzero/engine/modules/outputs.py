"""The choice of the logits among the values that a module returns."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from epochzero.engine.failure import PassFailedError, blaming
from epochzero.errors import UserError

Output = str | int | Callable[[Any], Any]
"""a name, an index, a path of these such as `heads.0.logits`, or a function of the returned value"""


def pick(returned: Any, which: Output | None) -> Tensor:
    """Returns the logits, which are found without a `which` if one part is called so, or is the only tensor."""
    if callable(which):
        with blaming("output="):
            returned = which(returned)
    elif which is not None:
        returned = _part(returned, str(which))
    elif not isinstance(returned, Tensor):
        returned = _logits(returned)
    if not isinstance(returned, Tensor):
        parts = _parts(returned)
        which_of = f"which of its parts ({', '.join(parts)})" if parts else "which part"
        raise PassFailedError(
            f"the module returns {type(returned).__name__}, not a tensor: say {which_of} is meant with output="
        )
    return returned


def _logits(returned: Any) -> Any:
    """The part that is called logits or out, or the only tensor in any part; else the whole."""
    parts = dict(zip(_parts(returned), _values(returned), strict=True))
    named = [parts[name] for name in ("logits", "out") if isinstance(parts.get(name), Tensor)]
    tensors = named or _tensors(returned)
    return tensors[0] if named or len(tensors) == 1 else returned


def _tensors(part: Any) -> list[Tensor]:
    return [part] if isinstance(part, Tensor) else [tensor for one in _values(part) for tensor in _tensors(one)]


def _values(part: Any) -> list[Any]:
    """Returns its parts."""
    return [part[int(name)] if _is_place(part, name) else _named(part, name) for name in _parts(part)]


def _part(returned: Any, path: str) -> Any:
    part = returned
    for step in path.split("."):
        if isinstance(part, Tensor):
            raise UserError("The module's output is a tensor, which has no parts: leave --output out.")
        try:
            part = part[int(step)] if _is_place(part, step) else _named(part, step)
        except (KeyError, IndexError, TypeError, AttributeError):
            has = f": it has {', '.join(_parts(part))}" if _parts(part) else ""
            raise UserError(f"The module's output ({type(part).__name__}) has no part '{step}'{has}.") from None
    if not isinstance(part, Tensor):
        raise UserError(f"Part '{path}' of the module's output is {type(part).__name__}, not a tensor.")
    return part


def _is_place(part: Any, step: str) -> bool:
    return re.fullmatch(r"-?\d+", step) is not None and not (isinstance(part, Mapping) and step in part)


def _named(part: Any, name: str) -> Any:
    return part[name] if isinstance(part, Mapping) else getattr(part, name)


def _parts(returned: Any) -> list[str]:
    """Returns the names or indices of its parts."""
    if isinstance(returned, Mapping):
        return [str(key) for key in returned]
    if dataclasses.is_dataclass(returned):
        return [field.name for field in dataclasses.fields(returned)]
    if isinstance(returned, tuple) and hasattr(returned, "_fields"):
        return list(returned._fields)
    if isinstance(returned, (tuple, list)):
        return [str(place) for place in range(len(returned))]
    return []
