"""A reader of pickles that runs no code in them, for official benchmark files.

It knows the few names that tables of accuracies need. It skips tensors: tables hold accuracies, not weights.

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
from io import BytesIO
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np

from epochzero.errors import DataError
from epochzero.unpickling import InertReader

MOST = 1 << 20, 200
"""A packed file unpacks to at most the first plus the second times its size."""
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
        if not isinstance(code, str) or code not in SCALARS:
            raise ValueError(f"it holds a number of the type {code if isinstance(code, str) else '?'}")
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


class _Reader(InertReader):
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
        try:
            return super().find_class(module, name)
        except pickle.UnpicklingError as error:
            raise HostilePickleError(str(error)) from None

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
            f"{source} is not {kind}, or it is damaged or cut short: {str(error)[:300] or type(error).__name__}."
        ) from error


def load(file: BytesIO | mmap) -> Any:
    """Returns the plain values of one pickle. Raises `HostilePickleError` and those of `DAMAGE`; see `refusing`."""
    return _Reader(file, encoding="utf-8").load()


def unpacked(packed: IO[bytes], size: int) -> Any:
    """Returns the plain values of the one pickle in a packed file of this size, which it reads to its end."""
    most = MOST[0] + MOST[1] * size
    content = packed.read(most + 1)
    if len(content) > most:
        raise ValueError(f"its {size:,} bytes unpack to more than {most:,}")
    return load(BytesIO(content))


def text(value: object) -> str:
    """Returns a value that has to be a text: the text of another may be endless."""
    if not isinstance(value, str):
        raise TypeError(f"a name is not a text but a {type(value).__name__}")
    return value


def load_pth(path: Path) -> Any:
    """Returns the plain values that `torch.save` wrote, without torch."""
    with refusing(str(path), "a file of torch.save"), path.open("rb") as file:
        if file.peek(4)[:4] == b"PK\x03\x04":
            with zipfile.ZipFile(file) as archive:
                inner = [name for name in archive.namelist() if name.split("/")[1:] == ["data.pkl"]]
                if len(inner) != 1:
                    raise ValueError("it has no data.pkl")
                with archive.open(inner[0]) as packed:
                    return unpacked(packed, archive.getinfo(inner[0]).compress_size)
        with mmap(file.fileno(), 0, access=ACCESS_READ) as content:  # which reads no more than there is
            if load(content) != LEGACY_MAGIC:
                raise ValueError("it does not begin with torch's number")
            load(content)
            load(content)
            return load(content)
