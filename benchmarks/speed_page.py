"""The page about speed on every space, from the report of a suite: `python benchmarks/speed_page.py suite.json`.

python -m epochzero.bare speed --suite all --device cuda --budget 200 --out suite.json
python benchmarks/speed_page.py suite.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from epochzero.evaluate.speed.report import Report, number
from epochzero.evaluate.speed.suite import COLUMNS, Line, lines
from epochzero.pictures import BLUE, GREEN, INK, ORANGE, new_panels, save, style

DOCS = Path(__file__).parent.parent / "docs"
PAGE, PICTURE = "results/speed-on-every-space.md", "speed_on_every_space"
ASKED = {
    "nb101": (30, 70, 12),
    "darts": (40, 100, 20),
    "mobilenet": (60, 150, 25),
    "autoformer_tiny": (30, 80, 20),
    "resnet": (25, 60, 12),
    "mnasnet": (50, 130, 25),
    "mbconv": (6, 15, 6),
    "mbconv_modules": (40, 100, 30),
    "nb201": (1.5, 3.3, 1.0),
}
"""milliseconds a network that were asked for before measuring"""
BUNDLES = ("one batch", "four batches", "dextr")
NOTES = """`auto` is what a search does by itself; the other ways are forced. Processes are several that
share the GPU, without the time of their start; `floor` is the arithmetic or memory traffic at the GPU's best,
whichever takes longer. Spearman's correlation is the least of a proxy's, of the automatic choice (or lockstep) with
one by one. Few networks are measured in each way, so figures differ by 10 to 20 % between runs. Empty cells were not
measured."""
UNEVEN = """In this run `auto` came first, on more networks than the ways that score one by one: shapes that
libraries had not seen took it longer, so its ratios are too high."""


def page(report: Report) -> str:
    """The page in Markdown."""
    found = [line for line in lines(report) if line.bundle in BUNDLES]
    machine = next(iter(report["spaces"].values()))["machine"]
    used = [way for way in COLUMNS if any(way in line.ms for line in found)]
    heads = ["space (batch)", "proxies", *(COLUMNS[way] for way in used), "asked", "auto / best", "floor", "Spearman"]
    table = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for line in sorted(found, key=lambda line: BUNDLES.index(line.bundle)):
        rank = "" if line.spearman is None else f"{line.spearman:.4f}"
        cells = [f"{line.space} ({line.samples})", line.bundle, *(number(line.ms.get(way)) for way in used)]
        cells += [number(asked(line)), number(line.ratio), number(line.floor), rank]
        table.append(f"| {' | '.join(cells)} |")
    about = f"{machine['device']}, {machine['cpus']} cores, torch {machine['torch']}, {machine['date'][:10]}"
    command = "`python -m epochzero.bare speed --suite all --device cuda`"
    return "\n".join([
        "# How fast is scoring on each space?",
        "",
        f"**{summary(found)}**",
        "",
        f"Milliseconds a network, from architectures to scores; {about}; {command}.",
        "",
        f"![Milliseconds a network by space](../images/{PICTURE}.svg)",
        "",
        *table,
        "",
        NOTES,
        *([UNEVEN] if uneven(report) else []),
        "",
    ])  # fmt: skip


def uneven(report: Report) -> bool:
    """Returns True if the automatic choice scored other networks than one by one, though one by one itself."""
    return any(part["settings"].get("together", "unknown") == "unknown" for part in report["spaces"].values())


def asked(line: Line) -> float | None:
    return ASKED[line.space][BUNDLES.index(line.bundle)] if line.space in ASKED else None


def summary(found: list[Line]) -> str:
    """A sentence or two about the table."""
    first = next(bundle for bundle in BUNDLES if any(line.bundle == bundle and line.ms for line in found))
    own = [line for line in found if line.bundle == first and line.ms]
    best = {line.space: min(line.ms.values()) for line in own}
    fastest, slowest = min(best, key=lambda space: best[space]), max(best, key=lambda space: best[space])
    text = (
        f"{first.capitalize()} takes {number(best[fastest])} milliseconds a network on {fastest} and "
        f"{number(best[slowest])} on {slowest}, in the fastest way that was measured."
    )
    ratios = [line.ratio for line in found if line.ratio is not None]
    if ratios:
        close = sum(ratio <= 1.1 for ratio in ratios)
        text += f" The automatic choice is within 10 % of the best way in {close} of {len(ratios)} rows."
    goals = [(goal, min(line.ms.values())) for line in found if line.ms and (goal := asked(line)) is not None]
    met = sum(ms <= goal for goal, ms in goals)
    return f"{text} {met} of {len(goals)} rows are as fast as was asked."


@style()
def draw(report: Report, folder: Path) -> list[str]:
    """Writes the picture: floor, automatic choice and fastest way of each space, one panel for each bundle."""
    found = lines(report)
    bundles = [bundle for bundle in BUNDLES if any(line.bundle == bundle for line in found)]
    figure, panels = new_panels(len(bundles), 3, 3.6, 3.0)
    for bundle, axes in zip(bundles, panels, strict=True):
        rows = [line for line in found if line.bundle == bundle and line.ms]
        for values, colour, label in (
            ([line.floor for line in rows], INK, "floor"),
            ([line.ms.get("auto") for line in rows], ORANGE, "auto"),
            ([min(line.ms.values()) for line in rows], BLUE, "fastest way"),
            ([asked(line) for line in rows], GREEN, "asked"),
        ):
            known = [(value, row) for row, value in enumerate(values) if value]
            marker = "|" if label == "asked" else "o"
            axes.plot([x for x, _ in known], [y for _, y in known], marker, color=colour, label=label)
        axes.set(xscale="log", xlabel="milliseconds a network", title=bundle, yticks=range(len(rows)))
        axes.set_yticklabels([line.space for line in rows])
        axes.invert_yaxis()
    panels[0].legend()
    return save(figure, folder, PICTURE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="the suite's JSON file")
    parser.add_argument("--docs", type=Path, default=DOCS, help="the folder of the site")
    given = parser.parse_args()
    report = json.loads(given.report.read_text(encoding="utf-8"))
    (given.docs / PAGE).write_text(page(report), encoding="utf-8")
    for name in draw(report, given.docs / "images"):
        if name.endswith(".png"):
            (given.docs / "images" / name).unlink()
    print(summary(lines(report)))


if __name__ == "__main__":
    main()
