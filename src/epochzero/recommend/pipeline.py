"""The steps from a table of clicks to predictions; `epochzero recommend` calls these functions.

Each step leaves its results in a folder, which the next one reads. `data` is a text file with its `schema`, the folder
of a table in numbers, or `synthetic:ROWS` for generated clicks; after a search it is the folder of the search.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from epochzero.data.sealed import read_own, write
from epochzero.engine.device import usable
from epochzero.errors import UserError
from epochzero.export.product import Exported
from epochzero.files import as_json, made_folder
from epochzero.files import write as write_file
from epochzero.progress import Progress, part_of, silent
from epochzero.recommend.comparison import compare, seeds_for
from epochzero.recommend.data.table import CtrTable, Part
from epochzero.recommend.estimate import LONG, estimate
from epochzero.recommend.jobs import (
    CHOICE,
    EMBEDDINGS,
    RESULT,
    SYNTHETIC,
    TABLE,
    Clicks,
    Remark,
    is_search,
    job_of,
    preset_of,
    recipe_options,
)
from epochzero.recommend.plots import plotted
from epochzero.recommend.presets import PRESETS, batch_size_for, preset_for
from epochzero.recommend.recommender import CHECKPOINT, ENCODING, FILE, Predicted, Recommender, described, predict_file
from epochzero.recommend.spaces.nasrec import nasrec
from epochzero.recommend.sub_one_shot import (
    EVOLUTION,
    RecommenderResult,
    SubOneShotSearch,
    check_limits,
    check_method,
    objective_of,
)
from epochzero.recommend.supernet.warm_up import Schedule
from epochzero.recommend.training.quality import Judge, Measures
from epochzero.recommend.training.recipes import TUNED, Recipe
from epochzero.recommend.training.recipes import recipe as named_recipe
from epochzero.recommend.training.source import EVERY_BASELINE, TrainingSource
from epochzero.recommend.training.trainer import evaluate, rows_in
from epochzero.registry import check_known

BASELINE_RESULT = "baselines.json"
GENERATED = f"{SYNTHETIC}:12000"
"""the data of a search without data"""
RANDOM = 2
"""random networks that are trained beside those of a search"""
FEW_STEPS = 50
"""after 16 steps of warm-up sub-networks were no better than after none, after 78 they were (docs/results.md)"""
MEASURED: tuple[Part, ...] = ("val", "test")


def search(
    data: str | Path | None = None,
    *,
    out: str | Path,
    schema: str | Path | None = None,
    bad_lines: str = "strict",
    space: str = "nasrec_small",
    proxy: str = "sigeo",
    method: str = EVOLUTION,
    warmup: float = 0.01,
    preset: str | None = None,
    recipe: str = TUNED,
    baselines: Sequence[str] = ("logistic", "dlrm"),
    seeds: int | None = None,
    max_params: int | None = None,
    max_flops: int | None = None,
    budget: int | None = None,
    time_limit: float | None = None,
    seed: int = 0,
    options: Mapping[str, Any] = {},
    progress: Progress = silent,
) -> RecommenderResult:
    """Searches a recommender for a table of clicks, and trains the best networks from scratch.

    The folder `out` takes result.json, choice.json, encoding.json and checkpoints, from which the same call resumes.
    `options` change the sizes of the preset, the settings of the recipe, and scaled, share, max_embedding_rows,
    max_embedding_bytes and embedding_width. The preset is `reduced` up to 2,000,000 training rows, else `published`.
    The best network and the `baselines` are trained with `seeds` seeds, by default 3 up to 200,000 training rows.
    Without data, 12,000 generated clicks are searched.
    """
    if data is None and schema is not None:
        raise UserError("--schema says how to read a table of clicks: give the table as --data.")
    options = {"random": RANDOM} | dict(options)
    sizes, own = preset_of(preset or "reduced", options)
    how = named_recipe(recipe).changed(recipe_options(options))
    clicks, whole = Clicks(str(GENERATED if data is None else data), schema, bad_lines, Path(out)), nasrec(space)
    check_method(method)
    if (budget is not None and budget < 1) or (time_limit is not None and not 0 < time_limit < math.inf):
        raise UserError("--budget takes at least 1 network, and --time-limit more than 0 seconds.")
    Schedule(epoch=1, level=warmup), objective_of(proxy, warmup)
    for name in baselines:
        check_known(name, EVERY_BASELINE, f"No baseline is called '{name}'")
    if seeds is not None and seeds < 1:
        raise UserError(f"The number of seeds is {seeds}: give at least 1.")
    columns = clicks.known_schema
    embeddings = (own.get(name) for name in EMBEDDINGS)
    fitted = whole.on(max(1, len(columns.dense)), [column.rows for column in columns.categorical], *embeddings)
    check_limits(fitted.reduced(sizes.widest, sizes.most_rows), max_params, max_flops)  # before a long table is read
    made_folder(clicks.folder)
    table = clicks.table(progress)
    rows = table.size("train")
    if preset is None:
        most = 256 if preset_for(rows) == "reduced" else PRESETS["published"].batch_size
        sizes, own = preset_of(preset_for(rows), {"batch_size": batch_size_for(rows, most)} | options)
    for part in MEASURED:
        if table.clicks(part) in (0, table.size(part)):
            _remark(f"All {part} rows have the same label, so there is no AUC on them.")
    given = {"preset": sizes, "max_params": max_params, "max_flops": max_flops, "seed": seed, "method": method} | own
    given |= {"budget": budget, "time_limit": time_limit}
    run = SubOneShotSearch(table, space, proxy, warmup, recipe=how, **given, progress=progress)
    if 0 < run.schedule.steps < FEW_STEPS:
        _remark(
            f"The warm-up is {run.schedule.steps} of the {run.schedule.epoch:,} steps of an epoch, too few to learn "
            "much from: on a table of this size a larger --warmup does more."
        )
    _tell_estimate(run, progress)
    result = run.run(clicks.folder)
    compared = compare(run, result, clicks.folder, baselines, seeds or seeds_for(run.trained_rows), progress)
    report = _report(result, run, clicks.folder) | {"comparison": compared}
    write_file(clicks.folder / RESULT, as_json(report, indent=1))
    write_file(clicks.folder / CHOICE, run.final.choice(run.final.parse(result.best.arch)))
    write_file(clicks.folder / ENCODING, run.data.encoding.text())
    return result


def train(
    data: str | Path,
    *,
    out: str | Path,
    arch: str | None = None,
    space: str = "nasrec_small",
    schema: str | Path | None = None,
    bad_lines: str = "strict",
    recipe: str | None = None,
    options: Mapping[str, Any] = {},
    seed: int = 0,
    device: str = "cpu",
    measures: Measures = Measures(),
    progress: Progress = silent,
) -> dict[str, Any]:
    """Trains, measures and keeps a recommender in the folder `out`; returns a report of it.

    `data` is the folder of a search, whose best network is trained unless `arch` names another, or a table of clicks
    with `arch` and `space`. `options` change the recipe, which is that of the search or `tuned`; they are the fields of
    `Settings`, use_layernorm, intervals, wide, share, max_embedding_rows, max_embedding_bytes and embedding_width.
    What the search has trained already, in the same way, is taken over. The same call resumes from its checkpoint.
    `measures` ask for a grouped AUC, the metrics of segments and a temperature.
    """
    usable(device)
    folder = Path(out)
    if arch is None and not is_search(Path(data)):
        nasrec(space)
        raise UserError("Say which network to train: give --arch, or the folder of a search as --data.")
    made_folder(folder)
    job = job_of(Clicks(str(data), schema, bad_lines, folder), options, progress, space, arch, recipe)
    chosen, table = job.space.parse(job.arch), job.table
    judge = Judge(table, measures)
    if measures.temperature and not table.size("val"):
        raise UserError("There are no validation rows to fit a temperature on: leave it out, or give some.")
    text, checkpoint = job.space.text(chosen), folder / CHECKPOINT
    source = TrainingSource(job.space, table, job.settings, seed, job.share, progress=progress)
    done = source.checkpoint(Path(data), text)
    if done.is_file() and not checkpoint.exists():
        write(checkpoint, read_own(done))
    model = source.model(chosen).to(device)
    trained = source.fit_network(model, text, checkpoint)
    metrics = {part: asdict(evaluate(model, table, part)) for part in MEASURED if table.size(part)}
    heat = judge.temperature(model) if measures.temperature else 1.0
    quality = {part: judge.quality(model, part, heat) for part in MEASURED if table.size(part)}
    if find_spec("matplotlib"):
        plotted({part: one["calibration"] for part, one in quality.items()}, folder)
    if trained.at_base:
        _remark("The network is no better than the base rate, at a tenth of the learning rate too: nothing was learnt.")
    training = {
        "source": Path(str(table.about["source"])).name,
        "rows": _rows(table, job.share),
        "settings": asdict(job.settings),
        "share": job.share,
        "seed": seed,
        "search": job.search,
        "metrics": metrics,
        "temperature": heat,
        "quality": quality,
    }
    write_file(folder / ENCODING, table.encoding.text())
    write_file(folder / FILE, described(job.space.name, text, training, job.space.form))
    embedded = job.space.embedding_params
    params = job.space.plan(chosen).params - embedded
    network = {"space": job.space.name, "arch": text, "params": params, "embedding_params": embedded}
    spent = {"steps": trained.steps, "best_step": trained.best_step, "rate": trained.rate, "at_base": trained.at_base}
    spent |= {"seconds": trained.seconds, "rows_per_second": trained.rows_per_second}
    return network | spent | training


def baselines(
    data: str | Path,
    *,
    out: str | Path,
    names: Sequence[str] = EVERY_BASELINE,
    schema: str | Path | None = None,
    bad_lines: str = "strict",
    recipe: str | None = None,
    options: Mapping[str, Any] = {},
    seed: int = 0,
    device: str = "cpu",
    progress: Progress = silent,
) -> list[dict[str, Any]]:
    """Trains models designed by hand, such as DLRM, for comparison; returns a row of metrics for each.

    `data` and `options` are those of `train`: on the folder of a search, the models are trained as its networks were.
    The folder `out` takes baselines.json and checkpoints, from which the same call resumes.
    """
    usable(device)
    for name in names:
        check_known(name, EVERY_BASELINE, f"No baseline is called '{name}'")
    clicks, rows = Clicks(str(data), schema, bad_lines, Path(out)), list[dict[str, Any]]()
    made_folder(clicks.folder)
    job = job_of(clicks, options, progress, named=recipe)
    for number, name in enumerate(names):
        source = TrainingSource(job.space, job.table, job.settings, seed, job.share, clicks.folder)
        source.progress = part_of(progress, number, len(names), name)
        one = source.baseline(name, device)
        steps = {} if one.trained is None else {"steps": one.trained.steps, "at_base": one.trained.at_base}
        metrics = {part: asdict(measured) for part, measured in one.metrics.items()}
        row: dict[str, Any] = {"name": name, "params": one.params, **steps, "seconds": one.seconds}
        rows.append(row | {str(part): measured for part, measured in metrics.items()})
    write_file(clicks.folder / BASELINE_RESULT, as_json(rows, indent=1))
    return rows


def export(
    trained: str | Path,
    out: str | Path,
    *,
    data: str | Path | None = None,
    onnx: bool = True,
    say: Callable[[str], None] = lambda step: None,
) -> Exported:
    """Writes a trained recommender as a product: code, weights, ONNX, a model card and the encoding of text.

    Nothing is written unless code and ONNX agree with the network on random rows, and on the first rows of `data`.
    """
    recommender, folder = Recommender.read(Path(trained)), Path(out)
    real = None if data is None else recommender.first_rows(data)
    if folder.resolve() == Path(trained).resolve():
        raise UserError(f"The product would be mixed with the training in '{folder}': choose another --out.")
    return recommender.export(made_folder(folder), real=real, onnx=onnx, say=say)


def predict(
    model: str | Path,
    data: str | Path,
    out: str | Path,
    *,
    bad_lines: str = "strict",
    device: str = "cpu",
    progress: Progress = silent,
) -> Predicted:
    """Writes the probability of a click for every line of a table; returns counts of rows, bad lines and odd values.

    `model` is the folder of a training or of its export. The file `out` has the columns line, probability and why.
    A column with many more unseen or missing values than the table of the training is a `Remark`.
    """
    usable(device)
    recommender = Recommender.read(Path(model))
    predicted = predict_file(
        recommender.module().to(device),
        data,
        recommender.encoding,
        out,
        bad_lines=bad_lines,
        temperature=recommender.temperature,
        progress=progress,
    )
    for remark in predicted.remarks:
        _remark(remark)
    return predicted


def _tell_estimate(run: SubOneShotSearch, progress: Progress) -> None:
    expected = estimate(run)
    progress(0, run.evaluations, f"search: {expected.text}")
    limit = run.time_limit or LONG
    if min(expected.scoring, limit) + expected.training > LONG:
        _remark(
            f"The search takes {expected.text}. A smaller --preset, --budget, --time-limit or --top makes it shorter."
        )


def _remark(text: str) -> None:
    warnings.warn(text, Remark, stacklevel=3)


def _rows(table: CtrTable, share: float) -> dict[str, int]:
    return {"train": rows_in(share, table.size("train"))} | {part: table.size(part) for part in MEASURED}


def _report(result: RecommenderResult, run: SubOneShotSearch, folder: Path) -> dict[str, Any]:
    """The content of result.json. A table within the folder has a relative path, so that the folder can be moved."""
    return {
        "best": asdict(result.best),
        "candidates": [asdict(candidate) for candidate in result.candidates],
        **{name: getattr(run, name) for name in ("space", "method", "warmup", "seed", "share")},
        "recipe": Recipe(run.training, run.final.form).told(),
        "proxy": result.objective,
        "warmup_steps": result.warmup_steps,
        "limits": {name: getattr(run, name) for name in ("max_params", "max_flops", *EMBEDDINGS)},
        "preset": asdict(run.preset),
        "table": TABLE if run.table.folder == folder / TABLE else str(run.table.folder.resolve()),
        "skipped_lines": run.table.skipped,
        "rows": _rows(run.table, run.share),
        "embedding_params": result.embedding_params,
        "evaluated": result.evaluated,
        "seconds": sum(result.seconds.values()),
        "stages": result.seconds,
    }
