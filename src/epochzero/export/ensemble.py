"""An ensemble as a product: one `model.py` with the code of every member, one file of weights, ONNX, a card.

Each member's printed classes go into a function, so that members may use the same names for different blocks. The
network takes standardised images and returns averaged probabilities.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import torch
from torch import Tensor

from epochzero.data import pink
from epochzero.ensemble.model import MANIFEST, Ensemble
from epochzero.export import card, standalone
from epochzero.export.preprocessing import Preprocessing
from epochzero.export.product import Exported, Wanted, write_product

NETWORK = '''

class Network(nn.Module):
    """Members whose predicted probabilities are averaged."""

    def __init__(self) -> None:
        super().__init__()
        self.members = nn.ModuleList([{members}])

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([member(x).softmax(1) for member in self.members]).mean(0)
'''

MEASURES = {
    "accuracy": "test accuracy",
    "error": "test error",
    "ate": "test error of a member, on average",
    "ppd": "share of the test images that two members disagree on",
    "ece": "expected calibration error",
    "nll": "test loss (negative log-likelihood)",
}


def holds_ensemble(path: Path) -> bool:
    """True for a folder that `epochzero ensemble` saved."""
    return (path / MANIFEST).is_file()


def source(ensemble: Ensemble) -> str:
    """The text of `model.py`."""
    members = []
    for place, text in enumerate(ensemble.texts):
        body = ensemble.member(place).plan.code().partition(standalone.IMPORTS)[2].strip("\n")
        head = f"def member{place + 1}() -> nn.Module:\n    # {text}\n"
        members.append(f"{head}{indent(body, '    ')}\n\n    return Network()\n")
    called = ", ".join(f"member{place + 1}()" for place in range(len(members)))
    title = f"# {len(members)} networks of {ensemble.space.name}. Printed by EpochZero.\n"
    imports = f"import json\nimport pathlib\nfrom collections import OrderedDict\n\nimport torch\n{standalone.IMPORTS}"
    code = "\n\n".join(("", *members))
    return f"{title}\n{imports}{code}{NETWORK.format(members=called)}{standalone.LOADER}"


def export_ensemble(
    ensemble: Ensemble,
    folder: Path,
    *,
    real: Tensor | None = None,
    wanted: Wanted = Wanted(),
) -> Exported:
    """Writes code, weights, ONNX and card to an existing folder, after all agree on random and `real` inputs."""
    rng = torch.Generator().manual_seed(0)
    inputs = [torch.randn(count, *ensemble.input_shape, generator=rng) for count in (1, 2, 3)]
    inputs += [pink(ensemble.input_shape, 2, 4, 1, 0).part(0)[0], *([] if real is None else [real])]
    preprocessing = prepared(ensemble)
    return write_product(
        ensemble.eval(),
        source(ensemble) + preprocessing.source,
        ensemble.state_dict(),
        folder,
        lambda checked: _card(ensemble, checked, real is not None),
        batches=[(x,) for x in inputs],
        wanted=wanted,
        preprocessing=preprocessing,
    )


def prepared(ensemble: Ensemble) -> Preprocessing:
    """The preparation of images before the members see them."""
    data = ensemble.facts.get("data", {}) | ensemble.pixels._asdict()
    return Preprocessing.of(data, ensemble.input_shape, ensemble.num_classes, logits=False)


def _card(ensemble: Ensemble, made: Exported, on_real_inputs: bool) -> str:
    """Markdown."""
    shape, facts, size = ", ".join(map(str, ensemble.input_shape)), ensemble.facts, len(ensemble.texts)
    flops = sum(ensemble.member(place).plan.trunk.flops for place in range(size))
    about = {
        "parameters": f"{ensemble.params:,} in {size} members",
        "multiply-accumulates": f"{flops:,} for one sample",
        "input": f"`x` [batch, {shape}], single precision",
        "output": f"`y` [batch, {ensemble.num_classes}], probabilities",
        "chosen by": facts.get("method", "unknown"),
        "latency": card.latency(made),
    }
    parts = [
        f"# {size} networks of {ensemble.space.name}\n",
        "".join(f"    {text}\n" for text in ensemble.texts),
        card.table(about),
        card.use(prepared(ensemble), "y = network(x)"),
        _training(ensemble),
        card.checked(made, on_real_inputs),
        card.MADE_BY,
    ]
    return "\n".join(parts)


def _training(ensemble: Ensemble) -> str:
    """The section on training; only inputs and measures for an ensemble that `epochzero ensemble` did not train."""
    facts, last = ensemble.facts, len(ensemble.texts) - 1
    measured = {MEASURES.get(name, name): f"{value:.4f}" for name, value in facts.get("measures", {}).items()}
    for attack in facts.get("attacks", ()):
        measured[f"under {attack['attack']}"] = (
            f"{100 * attack['attack_accuracy']:.2f} % accuracy of the attacked member, "
            f"{100 * attack['defence_accuracy']:.2f} % of the ensemble ({attack['images']} images)"
        )
    if not {"data", "recipe", "seed"} <= facts.keys():
        steps = card.preprocessing(ensemble.pixels._asdict(), ensemble.input_shape)
        return f"{card.UNKNOWN}\n{card.table({'input': steps, **measured})}"
    seeds = f"{facts['seed']} to {facts['seed'] + last}, one for each member" if last else facts["seed"]
    identity = {**facts, "seed": seeds, "num_classes": ensemble.num_classes, "input_shape": ensemble.input_shape}
    return card.training_section(identity, measured)
