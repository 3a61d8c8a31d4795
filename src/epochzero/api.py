"""The public face: `import epochzero as ez`, then `ez.score(...)` and `ez.search(...)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from epochzero import data as data_
from epochzero.callbacks import Callback, telling
from epochzero.data import Batch
from epochzero.data.loaders import batch_of, batches_of
from epochzero.engine import Network, PlanNetwork, score_network
from epochzero.engine.device import usable
from epochzero.engine.loss import needs_labels, with_loss
from epochzero.engine.modules.module_network import ModuleNetwork
from epochzero.engine.modules.outputs import Output
from epochzero.engine.space_networks import batch_for, check_one_real, check_one_row, suited
from epochzero.engine.threads import torch_threads
from epochzero.errors import UserError
from epochzero.executors import Executor, executor_of
from epochzero.executors.local import Local
from epochzero.hardware.latency import Latency, meter_of
from epochzero.next_steps import Ranking, Result
from epochzero.objectives.auto import DEFAULT
from epochzero.objectives.objective import parse_objective, parse_objectives, percentiles, single
from epochzero.plan import Plan
from epochzero.plan.module import PlanModule
from epochzero.progress import Progress, silent
from epochzero.quantities import count, skips
from epochzero.registry import spaces
from epochzero.spaces.base import AnySpace, Space
from epochzero.spaces.published import is_published
from epochzero.store import Store
from epochzero.strict import its_threads, strictly
from epochzero.study.given import GivenNetworks, entries_of
from epochzero.study.ranking import ranked
from epochzero.study.search import SearchSettings, combined_text, prepare
from epochzero.study.sources import Feedback
from epochzero.study.task import Task
from epochzero.types import Origin, Scores, Shape
from epochzero.user_code import is_reference

Loss = str | Callable[[Tensor, Tensor], Tensor]
"""a name, or a function of outputs and targets"""
Data = Any
"""a `Batch`, the name of noise, a file or folder, or what `epochzero.data.loaders` reads: tensors, loaders, ..."""


def space(name: str | Space) -> Space:
    """The search space of that name.

    >>> ez.space("nb201").count()
    15625
    """
    if not isinstance(name, str):
        return name
    named: Space = spaces[name]
    return named


def score(
    network: Any,
    proxies: str | Sequence[str] = DEFAULT,
    *,
    space: str | AnySpace | None = None,
    data: Data = "pink",
    y: Any = None,
    batch_size: int | None = None,
    image_size: int | None = None,
    input_shape: Shape | None = None,
    classes: int | None = None,
    unreadable: str = "stop",
    seed: int = 0,
    init: str = "default",
    device: str = "cpu",
    output: Output | None = None,
    loss: Loss | None = None,
    threads: int | None = None,
    strict: bool = False,
) -> Scores:
    """Score one network: an architecture of a space, as a value or as text, a module, or a function that makes one.

    A text such as "timm:resnet18" or "hf:microsoft/resnet-18" is a published model, which needs no space.

    An architecture's weights are drawn by `init` and `seed`; a module keeps its own, and is left exactly as it was.
    `output` picks the logits from what a module returns, where that is not a tensor, or a part called logits, or a
    single tensor: `0`, `"heads.0"`, or a function.

    The `loss` is that of class labels, or another: "mse", "binary", "segmentation", "next_token", or a function of
    outputs and targets, which may have any shape. Proxies that need one class for each sample then say so.

    The score "auto" is a percentile, from 0 to 100, among random networks of the same space, or among networks of its
    size; its `why` says which. The scores that it is made of follow it.

    Data are the name of noise of an `input_shape`, a file, a folder of images for each class (scaled to `image_size`;
    those that are `unreadable` stop, or "skip"), tensors, arrays, a pair of inputs and labels, a Dataset, a DataLoader,
    or any iterable of batches. They come in batches of `batch_size`: 64 for noise, files and Datasets, a loader's own,
    all samples for tensors. zico and sigeo want several batches. There are `classes`, or as many as the data say.

    A module with several inputs takes `data={"dense": t1, "ids": t2}`, by name, or `data=(t1, t2)`, in order, with
    labels `y`; without `y`, a pair is inputs and labels. Whole numbers stay whole numbers. Where a proxy draws or moves
    inputs, the whole numbers among them stay those of the data; where there are no others, it moves their embeddings.

    On a CPU torch runs on `threads` threads: by default on one or on all, whichever is faster. A `strict` score is the
    same to the last bit each time on one machine, by deterministic algorithms on one thread.

    >>> ez.score("16", ["params", "flops"], space="mlp")["params"].value
    12730.0
    """
    usable(device)
    if not isinstance(proxies, str) and not all(isinstance(one, str) for one in proxies):
        raise UserError("The second argument of score names proxies, such as 'naswot,params': give data as data=...")
    named = proxies if isinstance(proxies, str) else ",".join(proxies)
    asked = single(parse_objectives(named))
    how: dict[str, Any] = {"input_shape": input_shape, "classes": classes, "unreadable": unreadable, "loss": loss}
    if isinstance(network, nn.Module):
        batch = _batch(data, y, batch_size, image_size, seed, **how)
        with strictly(strict), torch_threads(its_threads(threads)):
            scores = score_network(as_network(network, batch, seed, output, device), asked, batch, seed).scores
        return Scores(percentiles(named, scores, "", batch.input_shape))
    if isinstance(network, (list, dict)):
        raise UserError("score takes one network: rank(networks, data=...) compares several.")
    if isinstance(network, Plan):
        raise UserError("A plan is scored as its module: score(plan.module(), data=...).")
    if space is None and (callable(network) or is_published(network) or is_reference(network)):
        entries = list(entries_of(network, output=output))
        if len(entries) > 1:
            raise UserError(f"'{network}' names {len(entries)} networks: rank(networks, data=...) compares several.")
        _, of_space, arch = entries[0]
    elif space is None:
        raise UserError("An architecture needs its space: score(arch, space='nb201'). A module needs none.")
    else:
        of_space = spaces[space] if isinstance(space, str) else space
        arch = of_space.parse(network) if isinstance(network, str) else network
    batch = suited(of_space, _batch(data, y, batch_size, image_size, seed, of_space, **how))
    with strictly(strict), torch_threads(its_threads(threads)):
        scores = Task(of_space, asked, batch, Origin(init, seed), device).score([arch])[0][0]
    made_for = "" if isinstance(of_space, GivenNetworks) else of_space.name
    return Scores(percentiles(named, scores, made_for, batch.input_shape))


def search(
    space: str | AnySpace | Mapping[str, Any] | Sequence[Any] = "nb201",
    proxy: str | Sequence[str] | Callable[[Any], float] | Feedback = DEFAULT,
    method: str | None = None,
    budget: str | int | None = None,
    *,
    objectives: str | Sequence[str] | None = None,
    time_limit: float | None = None,
    table: str | Path | None = None,
    pool: str | Path | None = None,
    max_params: str | float | None = None,
    max_flops: str | float | None = None,
    max_weight_bytes: str | float | None = None,
    max_activation_bytes: str | float | None = None,
    max_peak_memory: str | float | None = None,
    max_kv_bytes: str | float | None = None,
    byte_width: int = 4,
    max_latency_ms: float | None = None,
    min_throughput: float | None = None,
    latency: str = "torch",
    latency_batch: int = 1,
    max_energy: float | None = None,
    energy: str | None = None,
    data: Data = "pink",
    batch_size: int | None = None,
    image_size: int | None = None,
    input_shape: Shape | None = None,
    classes: int | None = None,
    unreadable: str = "stop",
    loss: Loss | None = None,
    seed: int = 0,
    init: str = "default",
    device: str = "cpu",
    store: str | Path = ":memory:",
    options: Mapping[str, Any] | None = None,
    ahead: int = 0,
    progress: Callable[[Result], None] | None = None,
    callbacks: Sequence[Callback | str] = (),
    executor: str | Executor = "auto",
    workers: int | None = None,
    threads: int | None = None,
    strict: bool = False,
    address: str | None = None,
) -> Result:
    """Searches a space for its best network: scores `budget` candidates, each within the limits.

    Modules, and functions that make them, by name or in a list, are a space of no others.

    The budget is the published one of the method, else 300, or only limited by time with a `time_limit` in seconds; of
    "nasi" and "zero_cost_pt", which search inside one network, it counts steps. With a store on disk, the same call
    resumes where it stopped. `progress` is called with the result so far; `callbacks` are told of each network, such as
    "tensorboard:logs" (`epochzero.callbacks`).

    `proxy` may be several proxies, which are combined by rank; a column of a `table` of known networks,
    "table:cifar10_val_12ep"; or a function of an architecture, such as a short training, whose values the store keeps
    under the function's name. With a `pool`, a table of scores, the search keeps to its networks and its scores.

    Limits of memory are in bytes, for one sample and numbers of `byte_width` bytes: `max_weight_bytes`,
    `max_activation_bytes`, `max_peak_memory` for both together, and `max_kv_bytes` for the keys and values that a
    language model keeps; "256k" is 256,000.

    With `objectives`, such as "dextr,-flops,latency", the search has several goals, and the result has a `front`.
    `latency` is "torch" or "onnxruntime", measured here, "table:FILE:COLUMN", or "command:./run {onnx}", a program that
    gets the exported network and prints the milliseconds of each run; a latency is that of `latency_batch` samples, and
    `min_throughput` a limit in samples a second. `energy` is "table:FILE:COLUMN". The default method is "evolution",
    and "pareto" for several objectives.

    `executor` is where networks are scored: "local", this process; "processes", `workers` of them on this machine, by
    default one per core; "auto", the one or the other, whichever is faster; "ray", a cluster at `address`, or one
    started here; or an open executor of your own, which stays open. Each network is scored by `threads` threads. Many
    workers have less to wait for if `ahead` batches are asked for before the scores of the first are told; the method
    then chooses by older scores. `strict` scores are the same to the last bit each time on one machine.

    >>> found = ez.search("nb201", "params", budget=10, max_params="300k")
    >>> found.plan.params <= 300_000
    True
    """
    _check_given(data, None, image_size, input_shape)
    settings = SearchSettings(
        space=space,
        proxy=proxy,
        method=method,
        budget=count(budget, "budget") if isinstance(budget, str) else budget,
        objectives=objectives if objectives is None or isinstance(objectives, str) else ",".join(objectives),
        time_limit=time_limit,
        table=table,
        pool=pool,
        max_params=max_params,
        max_flops=max_flops,
        max_weight_bytes=max_weight_bytes,
        max_activation_bytes=max_activation_bytes,
        max_peak_memory=max_peak_memory,
        max_kv_bytes=max_kv_bytes,
        byte_width=byte_width,
        max_latency_ms=max_latency_ms,
        min_throughput=min_throughput,
        latency=latency,
        latency_batch=latency_batch,
        max_energy=max_energy,
        energy=energy,
        threads=threads,
        data=data,
        batch_size=batch_size,
        image_size=image_size,
        input_shape=input_shape,
        classes=classes,
        unreadable=unreadable,
        loss=loss,
        seed=seed,
        init=init,
        device=device,
        options=options or {},
        ahead=ahead,
    )
    with strictly(strict), ExitStack() as opened:
        if isinstance(executor, str):
            made = executor_of(executor, workers=workers, threads=threads, address=address, device=device)
            scorer = opened.enter_context(made)
        elif workers or threads or address:
            raise UserError("An executor that is open already has its workers, threads and address: give them to it.")
        else:
            scorer = executor
        kept = opened.enter_context(Store.open(store))
        result = prepare(settings, scorer).run(kept, progress, Result, callbacks=callbacks)
    assert isinstance(result, Result)
    return result


def rank(
    networks: Any,
    data: Data = "pink",
    y: Any = None,
    *,
    proxy: str | Sequence[str] = DEFAULT,
    space: str | AnySpace | None = None,
    seeds: int | Sequence[int] = 3,
    input_shape: Shape | None = None,
    classes: int | None = None,
    batch_size: int | None = None,
    image_size: int | None = None,
    unreadable: str = "stop",
    loss: Loss | None = None,
    init: str = "default",
    device: str = "cpu",
    threads: int | None = None,
    strict: bool = False,
    output: Output | None = None,
    latency: str | None = None,
    store: str | Path = ":memory:",
    progress: Progress = silent,
    callbacks: Sequence[Callback | str] = (),
) -> Ranking:
    """Ranks networks by a score, over several draws of weights and data: which of them to train?

    `networks` are a dictionary, list or iterator of modules, functions or classes that make one, names such as
    "timm:resnet18", "file.py:make", or architectures of a `space`. A function may take `num_classes` and `input_shape`.
    Each seed draws the data, and the weights of what is made here; a module keeps its weights unless an `init` is
    named.

    The result lists networks by their mean score, with its spread, parameters, multiply-accumulates, peak memory, the
    latency if one is named ("torch", "onnxruntime"), groups that do not differ significantly, and the order by FLOPs.
    A network without a score comes last with the reason. With a store on disk the same call resumes. `strict` scores
    are the same to the last bit each time on one machine.

    >>> ez.rank(["8", "16"], space="mlp", proxy="params").best.name
    '16'
    """
    usable(device)
    with strictly(strict):
        threads = its_threads(threads)
    drawn = list(range(seeds)) if isinstance(seeds, int) else [*seeds] if isinstance(seeds, Iterable) else []
    if not drawn or not all(isinstance(seed, Integral) for seed in drawn):
        raise UserError("A ranking needs at least one seed: give how many, or a list of whole numbers.")
    objective = parse_objective(combined_text(proxy))
    of_space = spaces[space] if isinstance(space, str) else space
    entries = entries_of(networks, of_space, output)
    if of_space is None and isinstance(entries, list):
        of_space = next((entry[1] for entry in entries if entry[1].name == "published"), None)
    if isinstance(data, (str, Path)):
        how: dict[str, Any] = {"input_shape": input_shape, "classes": classes, "unreadable": unreadable, "loss": loss}
        batches = [_batch(data, y, batch_size, image_size, 0, of_space, seed, **how) for seed in drawn]
    else:
        _check_given(data, y, image_size, input_shape)
        batches = batches_of(data, y, drawn, size=batch_size, targets=not needs_labels(loss), classes=classes)
        batches = [with_loss(batch, loss) for batch in batches]
    if of_space is not None:
        batches = [suited(of_space, batch) for batch in batches]
    tasks = [
        Task(of_space or GivenNetworks(), objective.proxies, batch, Origin(init, seed), device, Local(threads))
        for batch, seed in zip(batches, drawn, strict=True)
    ]
    told_by = None if latency is None else lambda task: Latency(meter_of(latency, task, threads=threads), task.space)
    about = {"proxy": objective.text, "draws": len(drawn), "data": batches[0].about}
    with strictly(strict), Store.open(store) as opened, telling(callbacks, "rank", about) as told:
        ranking = ranked(entries, tasks, objective, opened, latency=told_by, progress=progress, kind=Ranking)
        ranking.tell(told)
    return ranking


def as_network(
    module: nn.Module,
    batch: Batch,
    seed: int = 0,
    output: Output | None = None,
    device: str = "cpu",
) -> Network:
    """A module as the engine sees it; one that was made from a plan is run by its plan."""
    if isinstance(module, PlanModule):
        if any(node.op.looks_up for node in module.plan.nodes):
            check_one_row("The plan", batch)
        else:
            check_one_real(batch)
        return PlanNetwork(module.plan, module.weights(), device)
    return ModuleNetwork(module, batch, seed, output, device)


def _batch(
    data: Data,
    y: Any,
    batch_size: int | None,
    image_size: int | None,
    seed: int,
    space: AnySpace | None = None,
    file_seed: int = 0,
    *,
    input_shape: Shape | None = None,
    classes: int | None = None,
    unreadable: str = "stop",
    loss: Loss | None = None,
) -> Batch:
    """The batch; `seed` draws samples of loaders, `file_seed` those of noise and files."""
    _check_given(data, y, image_size, input_shape)
    if not isinstance(data, (str, Path)):
        how: dict[str, Any] = {"size": batch_size, "classes": classes, "targets": not needs_labels(loss)}
        return with_loss(batch_of(data, y, seed=seed, **how), loss)
    named: dict[str, Any] = {"input_shape": input_shape, "num_classes": classes, "image_size": image_size}
    load = data_.load if space is None else partial(batch_for, space)
    return with_loss(load(data, size=batch_size, seed=file_seed, skip_unreadable=skips(unreadable), **named), loss)


def _check_given(data: Data, y: Any, image_size: int | None, input_shape: Shape | None) -> None:
    """UserError for arguments that do not go with these data."""
    if y is not None and isinstance(data, (str, Path, Batch)):
        raise UserError("Labels y go with inputs that are tensors: this data has its own.")
    if image_size is not None and not isinstance(data, (str, Path)):
        raise UserError("An image size is for folders of image files: leave it out for other data.")
    if input_shape is not None and not isinstance(data, (str, Path)):
        raise UserError("An input shape is for noise: leave it out for data that have a shape.")
    if not isinstance(input_shape, (Sequence, type(None))) or not all(
        isinstance(n, Integral) for n in input_shape or ()
    ):
        raise UserError(f"An input shape is whole numbers such as (3, 224, 224), not {input_shape!r}.")
