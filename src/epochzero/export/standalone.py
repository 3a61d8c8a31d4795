"""Code and weights that need only torch.

`model.py` is the printed network with a function `load` at its end. The weights are a safetensors file, which is a
length, a JSON table and the numbers, so that ten lines read it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from torch import nn

from epochzero.export.preprocessing import Preprocessing
from epochzero.plan import Plan

MODEL, WEIGHTS = "model.py", "model.safetensors"
_numbers = count()
IMPORTS = "from torch import Tensor, nn\n"

LOADER = f'''

def load(path: str | pathlib.Path = pathlib.Path(__file__).with_name("{WEIGHTS}")) -> Network:
    """The network with its weights, ready to predict. Reads a safetensors file of single precision numbers."""
    content = pathlib.Path(path).read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    weights = {{}}
    for name, about in json.loads(content[8:start]).items():
        if name != "__metadata__":
            first, last = about["data_offsets"]
            numbers = bytearray(content[start + first : start + last])
            weights[name] = torch.frombuffer(numbers, dtype=torch.float32).reshape(about["shape"])
    network = Network()
    network.load_state_dict(weights)
    return network.eval()
'''


def source(plan: Plan, preprocessing: Preprocessing | None = None) -> str:
    """The text of `model.py`."""
    head, separator, body = plan.code().partition(IMPORTS)
    assert separator
    comments = "".join(line for line in head.splitlines(keepends=True) if line.startswith("#"))
    end = preprocessing.source if preprocessing else ""
    ordered = "from collections import OrderedDict\n" if "OrderedDict" in head else ""
    return f"{comments}\nimport json\nimport pathlib\n{ordered}\nimport torch\n{IMPORTS}{body}{LOADER}{end}"


@contextmanager
def loaded(folder: Path) -> Iterator[nn.Module]:
    """The network as its users load it: runs `model.py` and its `load`."""
    name = f"epochzero_exported_{next(_numbers)}"  # torch caches modules by name, so that each needs a new one
    spec = importlib.util.spec_from_file_location(name, folder / MODEL)
    assert spec is not None and spec.loader is not None
    model = importlib.util.module_from_spec(spec)
    sys.modules[name] = model  # torch.export looks up the code's names there
    try:
        spec.loader.exec_module(model)
        yield model.load()
    finally:
        del sys.modules[name]
