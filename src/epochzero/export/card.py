"""The model card: the network, its training, its scores and the checks of the product."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from epochzero import __version__
from epochzero.data.batch import shape_text
from epochzero.export.preprocessing import Preprocessing
from epochzero.export.subject import Subject, input_names
from epochzero.stats.share import share_text
from epochzero.store import manifest

if TYPE_CHECKING:
    from epochzero.export.product import Exported

UNKNOWN = "## Training\n\nUnknown: the network was not trained by EpochZero.\n"
MADE_BY = f"Made by EpochZero {__version__}, Python {platform.python_version()}.\n"
TAUGHT = ("distil", "temperature")
"""settings of a recipe that concern a teacher"""
LIMITS = {
    "max_params": "parameters",
    "max_flops": "multiply-accumulates",
    "max_weight_bytes": "bytes of weights",
    "max_activation_bytes": "bytes of activations",
    "max_peak_memory": "bytes of both",
    "max_kv_bytes": "bytes of keys and values",
    "max_latency_ms": "milliseconds a sample",
}
"""limits of a search and their units"""


def card(subject: Subject, made: Exported, on_real_inputs: bool) -> str:
    """Markdown."""
    plan = subject.plan
    inputs = [
        (name, ", ".join(map(str, shape))) for name, shape in zip(input_names(plan), plan.input_shapes, strict=True)
    ]
    identity: Any = (subject.training or {}).get("identity")
    parts = [
        f"# A network of {subject.space}\n\n    {subject.arch}\n",
        table(
            {
                "parameters": f"{plan.params:,}",
                "multiply-accumulates": f"{plan.flops:,} for one sample",
                "input": "; ".join(f"`{name}` [batch, {shape}]" for name, shape in inputs)
                + (", single precision" if len(inputs) == 1 else ""),
                "output": f"`y` [batch, {', '.join(map(str, plan.output_shape))}], logits",
                "weights": subject.about_weights,
                "latency": latency(made),
            }
        ),
        use(
            Preprocessing.of_training(identity),
            f"y = network({', '.join(name for name, _ in inputs)})    # "
            f"{', '.join(f'{name} [batch, {shape}]' for name, shape in inputs)}",
        ),
        subject.training_section or training_of(subject.training),
        *_scores(subject),
        checked(made, on_real_inputs),
        MADE_BY,
    ]
    return "\n".join(parts)


def use(preprocessing: Preprocessing | None, call: str) -> str:
    """The section on the use of `model.py`."""
    names, lines = "load", [call]
    if preprocessing is not None and preprocessing.of_bytes:
        names = "CLASSES, load, preprocess"
        lines += [
            f"y = network(preprocess(pixels))    # bytes [batch, height, width, {preprocessing.shape[0]}] of any size",
            "print([CLASSES[place] for place in y.argmax(1)])",
        ]
    code = "\n".join([f"from model import {names}\n", "network = load()  # needs torch alone", *lines])
    return f"## Use\n\n```python\n{code}\n```\n"


def latency(made: Exported) -> str:
    """The latency of one sample, with the machine."""
    if made.latency is None:
        return "not measured"
    machine: Any = manifest({})["machine"]
    return f"{made.latency} for one sample, ONNX Runtime on {machine['cpu'] or 'an unknown CPU'}"


def checked(made: Exported, on_real_inputs: bool) -> str:
    """The section on the agreement of the files with each other."""
    onnx = "not exported" if made.onnx_error is None else f"largest difference {made.onnx_error:.2g}"
    rows = {
        "model.py against the network that was searched": f"largest difference {made.code_error:.2g}",
        "model.onnx in ONNX Runtime against model.py": onnx,
        "on": "random and real inputs" if on_real_inputs else "random inputs",
    }
    return f"## Checked\n\n{table(rows)}{_measured(made)}"


def _measured(made: Exported) -> str:
    """The accuracy of each file on test images, and the differences and times of further files."""
    rows = {} if made.accuracy is None else {"model.py": f"accuracy {_accuracy(made.accuracy)}"}
    for one in made.further:
        right = "" if one.accuracy is None else f", accuracy {_accuracy(one.accuracy)}"
        rows[one.file] = f"largest difference {one.error:.2g}, {one.latency} for one sample{right}"
    return f"\n## Files\n\n{table(rows)}" if rows else ""


def _accuracy(right: tuple[int, int]) -> str:
    return f"{share_text(*right)} of {right[1]:,} test images"


def training_of(training: Mapping[str, Any] | None) -> str:
    if training is None:
        return UNKNOWN
    identity, last, planned = training["identity"], training["history"][-1], training["identity"]["recipe"]["epochs"]
    epochs = f"{training['epoch']} of {planned} epoch{'s' if planned > 1 else ''}"
    tested = int(identity["data"]["test"])
    accuracy = share_text(round(last["test_accuracy"] * tested), tested)
    return training_section(
        identity,
        {
            "test accuracy": f"{accuracy} after {epochs}; in brackets the 95 % interval",
            "test loss": f"{last['test_loss']:.4f}",
        },
    )


def training_section(identity: Mapping[str, Any], measured: Mapping[str, str]) -> str:
    """The section on training: data, test results, preprocessing of inputs, the recipe."""
    data, taught_by = identity["data"], identity.get("teacher")
    shape = shape_text(tuple(identity["input_shape"]))
    recipe = {name: value for name, value in identity["recipe"].items() if value and (taught_by or name not in TAUGHT)}
    rows = {
        "data": f"{data['file']}: {data['train']:,} images of {shape} to train on, {identity['num_classes']} classes",
        "classes": ", ".join(f"{place} {name}" for place, name in enumerate(data.get("classes", ()))),
        "test": f"{data['test']:,} images, {data['test_is']}",
        **measured,
        "input": preprocessing(data, identity["input_shape"]),
        "recipe": ", ".join(f"{name} {value}" for name, value in recipe.items()),
        "teacher": taught_by or "",
        "seed": str(identity["seed"]),
    }
    return f"## Training\n\n{table({name: row for name, row in rows.items() if row})}"


def preprocessing(data: Mapping[str, Any], shape: Sequence[int]) -> str:
    """The preprocessing of an image to the network's input."""
    numbers = {"mean": data["mean"], "std": data["std"]}
    stated = "; ".join(f"{name} {', '.join(f'{v:.4g}' for v in values)}" for name, values in numbers.items())
    scaled = f"pixels are divided by {data['scale']:g}, then " if data["scale"] != 1 else ""
    cut = f"image files are cropped to the square in their centre, and scaled to {shape[-1]} pixels; "
    return f"{cut if 'classes' in data else ''}{scaled}standardised per channel: {stated}"


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
            "budget": _limits(settings),
            "scored on": about.get("settings", {}).get("data", settings["batch"]),
            "run": f"{subject.run.id}, begun {about.get('started', 'at an unknown time')}",
            "versions": ", ".join(f"{name} {version}" for name, version in versions.items() if version),
        }
        parts.append(table(rows))
    if subject.scores:
        parts.append(table({name: f"{value:.6g}" for name, value in subject.scores.items()}))
    return parts


def _limits(settings: Mapping[str, Any]) -> str:
    """The limits of a search in words."""
    given = {unit: settings.get(name) for name, unit in LIMITS.items()}
    limits = [f"{most:,} {unit}" for unit, most in given.items() if most is not None]
    return f"at most {', '.join(limits)}" if limits else "any size"


def table(rows: Mapping[str, object]) -> str:
    """Two columns."""
    lines = [f"| {name} | {_cell(value)} |" for name, value in rows.items()]
    return "\n".join(["| | |", "|---|---|", *lines]) + "\n"


def _cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")
