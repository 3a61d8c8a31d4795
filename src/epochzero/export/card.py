"""The model card: what the network is, what it was trained on, how it scored, and how it was checked."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from epochzero import __version__
from epochzero.data.batch import shape_text
from epochzero.export.subject import Subject, input_names
from epochzero.store import manifest

if TYPE_CHECKING:
    from epochzero.export.product import Exported


def card(subject: Subject, made: Exported, on_real_inputs: bool) -> str:
    """Markdown."""
    plan = subject.plan
    inputs = [
        (name, ", ".join(map(str, shape))) for name, shape in zip(input_names(plan), plan.input_shapes, strict=True)
    ]
    machine: Any = manifest({})["machine"]
    parts = [
        f"# A network of {subject.space}\n\n    {subject.arch}\n",
        _table(
            {
                "parameters": f"{plan.params:,}",
                "multiply-accumulates": f"{plan.flops:,} for one sample",
                "input": "; ".join(f"`{name}` [batch, {shape}]" for name, shape in inputs)
                + (", single precision" if len(inputs) == 1 else ""),
                "output": f"`y` [batch, {', '.join(map(str, plan.output_shape))}]",
                "weights": subject.about_weights,
                "latency": _latency(made, machine),
            }
        ),
        "## Use\n\n```python\nfrom model import load\n\nnetwork = load()  # needs torch alone\n"
        f"y = network({', '.join(name for name, _ in inputs)})    # "
        f"{', '.join(f'{name} [batch, {shape}]' for name, shape in inputs)}\n```\n",
        *([subject.told] if subject.told else _training(subject.training)),
        *_scores(subject),
        "## Checked\n",
        _table(
            {
                "model.py against the network that was searched": f"largest difference {made.code_error:.2g}",
                "model.onnx in ONNX Runtime against model.py": "not exported"
                if made.onnx_error is None
                else f"largest difference {made.onnx_error:.2g}",
                "on": "random and real inputs" if on_real_inputs else "random inputs",
            }
        ),
        f"Made by EpochZero {__version__}, Python {platform.python_version()}.\n",
    ]
    return "\n".join(parts)


def _latency(made: Exported, machine: Mapping[str, Any]) -> str:
    if made.latency is None:
        return "not measured"
    return f"{made.latency} for one sample, ONNX Runtime on {machine['cpu'] or 'an unknown CPU'}"


def _training(training: Mapping[str, Any] | None) -> list[str]:
    if training is None:
        return ["## Training\n\nNot by `epochzero train`, or not at all: nothing is known of it here.\n"]
    identity, history = training["identity"], training["history"]
    data, last = identity["data"], history[-1]
    shape = shape_text(tuple(identity["input_shape"]))
    plain = {name: value for name, value in identity["recipe"].items() if value}
    numbers = {"mean": data["mean"], "std": data["std"]}
    stated = "; ".join(f"{name} {', '.join(f'{v:.4g}' for v in values)}" for name, values in numbers.items())
    scaled = "pixels are divided by 255, then " if data["scale"] == 255 else ""
    return [
        "## Training\n",
        _table(
            {
                "data": f"{data['file']}: {data['train']:,} images of {shape} to train on, {identity['num_classes']} "
                "classes",
                "test": f"{data['test']:,} images, {data['test_is']}",
                "test accuracy": f"{100 * last['test_accuracy']:.2f} % after {training['epoch']} of "
                f"{identity['recipe']['epochs']} epochs",
                "test loss": f"{last['test_loss']:.4f}",
                "input": f"{scaled}standardised per channel: {stated}",
                "recipe": ", ".join(f"{name} {value}" for name, value in plain.items()),
                "seed": identity["seed"],
            }
        ),
    ]


def _scores(subject: Subject) -> list[str]:
    if subject.run is None and not subject.scores:
        return []
    parts = ["## Search\n"]
    if subject.run is not None:
        about: Any = subject.run.manifest
        settings, versions = subject.run.settings, about.get("versions", {})
        rows = {
            "search": f"{settings['method']} by {settings['proxy']}, {settings['budget']} networks, seed "
            f"{settings['seed']}",
            "scored on": about.get("settings", {}).get("data", settings["batch"]),
            "run": f"{subject.run.id}, begun {about.get('started', 'at an unknown time')}",
            "versions": ", ".join(f"{name} {version}" for name, version in versions.items() if version),
        }
        parts.append(_table(rows))
    if subject.scores:
        parts.append(_table({name: f"{value:.6g}" for name, value in subject.scores.items()}))
    return parts


def _table(rows: Mapping[str, object]) -> str:
    """Two columns."""
    lines = [f"| {name} | {_cell(value)} |" for name, value in rows.items()]
    return "\n".join(["| | |", "|---|---|", *lines]) + "\n"


def _cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")
