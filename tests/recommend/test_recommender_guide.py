"""The guide to recommenders, run as it is written, on clicks of a small shop."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.command import epochzero
from tests.test_guides import commands_of, files_of

GUIDE = "recommenders.md"
FOLDERS = {"found", "trained", "baselines", "product", "predictions.csv"}


@pytest.mark.usefixtures("onnx_rules")
def test_from_a_table_to_predictions(tmp_path: Path) -> None:
    rng, lines = Random(0), ["click,age,city,user"]
    for _ in range(1400):
        city, age = rng.choice(["Bern", "Oslo", "Rome"]), rng.randrange(18, 80)
        lines.append(f"{int(rng.random() < (0.6 if city == 'Rome' else 0.2))},{age},{city},u{rng.randrange(300)}")
    (tmp_path / "shop.csv").write_text("\n".join(lines) + "\n")
    for name, text in files_of(GUIDE).items():
        (tmp_path / name).write_text(text)
    for command in commands_of(GUIDE):
        words = [str(tmp_path / word) if "shop." in word or word in FOLDERS else word for word in command.split()[3:]]
        ran = epochzero(*command.split()[1:3], *words)
        assert ran.code == 0, ran.err
    written = (tmp_path / "predictions.csv").read_text().splitlines()
    assert len(written) == 1401
    chances: dict[str, list[float]] = {"Bern": [], "Rome": []}
    for line, row in zip(lines[1:], written[1:], strict=True):
        if (city := line.split(",")[2]) in chances:
            chances[city].append(float(row.split(",")[1]))
    means = {city: sum(found) / len(found) for city, found in chances.items()}
    assert means["Rome"] > means["Bern"] + 0.1  # what was planted was learnt
