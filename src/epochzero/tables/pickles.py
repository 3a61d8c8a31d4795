"""A reader of pickles that runs no code in them, for official benchmark files.

A pickle can name any function and call it. This reader knows the few names that tables of accuracies need, replaces
them by inert stand-ins, and refuses every other name. It skips tensors: tables hold accuracies, not weights.

There are two containers: a bare pickle, and the `.pth` of `torch.save`, which is a zip archive with the pickle in
`data.pkl` or, before PyTorch 1.6, four pickles in a row (magic number, protocol, machine, object) and tensor data.
"""

from __future__ import annotations

import lzma
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np

from epochzero.errors import DataError

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
SCALARS = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1")
DAMAGE = (
    pickle.UnpicklingError,
    EOFError,
    AttributeError,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
    OverflowError,
    MemoryError,
    RuntimeError,
    OSError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
)
"""exceptions of readers on bytes that are damaged or in another format"""


class HostilePickleError(DataError):
    """A pickle that names a function or class that a table of accuracies does not need."""


class _NotRead:
    """Stand-in for a tensor."""

    def __repr__(self) -> str:
        return "a tensor"


class _Type:
    """Stand-in for numpy.dtype."""

    def __init__(self, code: object = None, *_: object) -> None:
        if code not in SCALARS:
            raise ValueError(f"it holds a number of the type {code!r}")
        self.code, self.order = code, "<"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = ">" if state[1] == ">" else "<"


def _scalar(kind: object, content: object) -> Any:
    """Stand-in for numpy's scalar: returns a plain number."""
    if not isinstance(kind, _Type) or not isinstance(content, bytes):
        raise TypeError("a number is not written as bytes of a type")
    (number,) = np.frombuffer(content, f"{kind.order}{kind.code}")
    return number.item()


def _encode(text: str, encoding: str) -> bytes:
    """Stand-in for _codecs.encode, with which old pickles write bytes."""
    if encoding != "latin1":
        raise ValueError(f"bytes are written as {encoding!r}")
    return text.encode("latin1")


def _pass_over(*_: object) -> _NotRead:
    return _NotRead()


class _Reader(pickle.Unpickler):
    known: ClassVar[dict[tuple[str, str], Callable[..., Any]]] = {
        ("collections", "OrderedDict"): OrderedDict,
        ("builtins", "set"): set,
        ("__builtin__", "set"): set,
        ("numpy", "dtype"): _Type,
        ("numpy.core.multiarray", "scalar"): _scalar,
        ("numpy._core.multiarray", "scalar"): _scalar,
        ("_codecs", "encode"): _encode,
        ("torch._utils", "_rebuild_tensor"): _pass_over,
        ("torch._utils", "_rebuild_tensor_v2"): _pass_over,
        ("torch._utils", "_rebuild_parameter"): _pass_over,
        **{
            ("torch", f"{kind}Storage"): _pass_over
            for kind in ("Float", "Double", "Half", "Long", "Int", "Short", "Char", "Byte", "Bool")
        },
    }

    def find_class(self, module: str, name: str) -> Any:
        """Returns the stand-in of a known name."""
        if (module, name) not in self.known:
            raise HostilePickleError(f"its pickle asks for {module}.{name}")
        return self.known[module, name]

    def persistent_load(self, _: object) -> _NotRead:
        """Returns the stand-in of a tensor, whose data torch stores outside the pickle."""
        return _NotRead()


@contextmanager
def refusing(source: str, kind: str) -> Iterator[None]:
    """Turn any failure while a file is read into one sentence."""
    try:
        yield
    except HostilePickleError as error:
        raise HostilePickleError(
            f"{source} is refused, and nothing in it was run: {error}, which no table of accuracies needs and which "
            f"could run any code. Get the file from its authors."
        ) from error
    except DataError:
        raise
    except DAMAGE as error:
        raise DataError(
            f"{source} is not {kind}, or it is damaged or cut short: {error or type(error).__name__}."
        ) from error


def load(file: IO[bytes]) -> Any:
    """Returns the plain values of one pickle. Raises `HostilePickleError` and those of `DAMAGE`; see `refusing`."""
    return _Reader(file, encoding="utf-8").load()


def load_pth(path: Path) -> Any:
    """Returns the plain values that `torch.save` wrote, without torch."""
    with refusing(str(path), "a file of torch.save"), path.open("rb") as file:
        if file.peek(4)[:4] == b"PK\x03\x04":
            with zipfile.ZipFile(file) as archive:
                inner = [name for name in archive.namelist() if name.split("/")[1:] == ["data.pkl"]]
                if len(inner) != 1:
                    raise ValueError("it has no data.pkl")
                with archive.open(inner[0]) as packed:
                    value = load(packed)
                    packed.read()  # to the end, where the archive's checksum is tested
                    return value
        if load(file) != LEGACY_MAGIC:
            raise ValueError("it does not begin with torch's number")
        load(file)
        load(file)
        return load(file)
