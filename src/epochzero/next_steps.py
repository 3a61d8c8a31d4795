"""The result of a search together with what people do next: judge it, train it, export it, look at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from epochzero.errors import UserError
from epochzero.files import made_folder
from epochzero.spaces.base import Space
from epochzero.study import ask_tell, ranking, result
from epochzero.types import Origin

if TYPE_CHECKING:
    from epochzero.callbacks import Callback
    from epochzero.export import Exported
    from epochzero.study.task import Task
    from epochzero.train.images import Trained


class How(TypedDict, total=False):
    """Keywords of an export."""

    weights: str | Path | None
    data: str | Path | None
    onnx: bool
    also: Sequence[str]


class Result(result.Result):
    """The result of a search by any method: `best`, `top(n)`, `front`, `history`, `table()`, and the next steps."""

    @property
    def trust(self) -> str:
        """The evidence on this score for such networks, and the network with the most FLOPs."""
        from epochzero.evaluate.trust import trust_in_search

        return trust_in_search(self)

    @property
    def sentences(self) -> list[str]:
        return [*super().sentences, *filter(None, [self.trust])]

    def train(
        self,
        data: str | Path,
        *,
        recipe: str = "default",
        folder: str | Path | None = None,
        callbacks: Sequence[Callback | str] = (),
        **changes: Any,
    ) -> Trained:
        """Trains the winner on images by a recipe; `changes` are settings of the recipe, such as `epochs=10`.

        With a folder every epoch is kept, and the same call resumes. `callbacks` are told of each epoch.
        """
        from epochzero.train.image_data import load_images
        from epochzero.train.images import train_architecture
        from epochzero.train.recipes import recipe_of

        task, how = self.task, recipe_of(recipe, changes)
        images = load_images(data, seed=task.origin.seed, side=side_of(task))
        place = None if folder is None else Path(folder)
        seed, device = task.origin.seed, task.device
        return train_architecture(task.space, self.winner.arch, images, how, place, callbacks, seed=seed, device=device)

    def export(self, folder: str | Path, **how: Unpack[How]) -> Exported:
        """Writes the winner as code, weights, ONNX and a model card.

        `weights` is the folder of a training, and `data` its images, to measure accuracies on. Without `onnx` there is
        no model.onnx. `also` names further files: "pixels", "pt2", "int8", "executorch".
        """
        return exported(self.task, self.winner.arch, Path(folder), **how)

    def report(self, path: str | Path = "report.html", *, table: str | Path | None = None) -> Path:
        """Writes one HTML file about the run, which opens offline; the search needs a store on disk."""
        return reported(self.store, self.run, Path(path), table)


class Ranking(ranking.Ranking):
    __doc__ = ranking.Ranking.__doc__

    @property
    def trust(self) -> str:
        """The evidence on this score for such networks."""
        from epochzero.evaluate.trust import trust_in_ranking

        return trust_in_ranking(self)

    @property
    def sentences(self) -> list[str]:
        return [*super().sentences, self.trust]

    def train(
        self,
        data: str | Path,
        *,
        top: int = 1,
        recipe: str = "default",
        folder: str | Path | None = None,
        seed: int = 0,
        device: str = "cpu",
        **changes: Any,
    ) -> dict[str, Trained]:
        """Trains the best networks on images by a recipe, and returns them by name, those of the best accuracy first.

        `changes` are settings of the recipe, such as `epochs=10`. With a folder every epoch is kept, and the same call
        resumes. Modules are copied.
        """
        from epochzero.train.image_data import load_images
        from epochzero.train.images import train_architecture
        from epochzero.train.recipes import recipe_of

        images, how = load_images(data, seed=seed, side=side_of(self.task)), recipe_of(recipe, changes)
        trained = {}
        for place, row in enumerate(self.scored[:top], 1):
            if row.name not in self.sources:
                raise UserError("The networks of an iterator are gone: rank a list or a dictionary to train them.")
            own = None if folder is None else Path(folder) / str(place)
            space, arch = self.sources[row.name]
            trained[row.name] = train_architecture(space, arch, images, how, own, seed=seed, device=device)
        return dict(sorted(trained.items(), key=lambda one: -one[1].history[-1]["test_accuracy"]))

    def export(self, folder: str | Path, *, name: str | None = None, **how: Unpack[How]) -> Exported:
        """Writes the best network, or the one of a name, as a product; the options are those of a search's result."""
        row = self.best if name is None else self[name]
        if self.task is None or row.name not in self.sources:
            raise UserError("The networks of an iterator are gone: rank a list or a dictionary to export one.")
        space, arch = self.sources[row.name]
        return exported(replace(self.task, space=space), arch, Path(folder), **how)

    def report(self, path: str | Path = "report.html") -> Path:
        """Writes one HTML file about the ranking, which opens offline; the ranking needs a store on disk."""
        return reported(self.store, self.run, Path(path))


class Study(ask_tell.Study):
    __doc__ = ask_tell.Study.__doc__
    kind = Result

    if TYPE_CHECKING:

        def result(self) -> Result: ...


def reported(store: str | None, run: str, path: Path, table: str | Path | None = None) -> Path:
    """Writes the report of a run that a store on disk keeps."""
    from epochzero import report

    if store is None:
        raise UserError("A report is made from a store on disk: call it again with store='run.db'.")
    report.write(report.Subject(Path(store), None if table is None else Path(table), [], run), path)
    return path


def side_of(task: Task | None) -> int:
    """The side of the images that networks were scored on; the default of image files for other data."""
    from epochzero.data.image_folder import SIDE

    shape = () if task is None else task.batch.input_shape
    return shape[-1] if len(shape) == 3 else SIDE


def space_of_plans(space: Any) -> Space:
    """The same space; UserError for one whose networks are modules."""
    if not isinstance(space, Space):
        raise UserError(f"The space '{space.name}' gives modules and no plans: train them with your own loop.")
    return space


def exported(
    task: Task,
    arch: Any,
    folder: Path,
    *,
    weights: str | Path | None = None,
    data: str | Path | None = None,
    onnx: bool = True,
    also: Sequence[str] = (),
) -> Exported:
    """Writes a network as code, or a module as its program, with weights, ONNX and a model card."""
    from epochzero.engine.space_networks import module_of
    from epochzero.export import Subject, export
    from epochzero.export.module import export_module
    from epochzero.export.product import Wanted
    from epochzero.export.resolve import training_images
    from epochzero.export.weights import read_weights

    given = None if weights is None else read_weights(Path(weights))
    known = {} if given is None else given.identity
    classes = known.get("num_classes") or task.batch.num_classes
    shape = tuple(known.get("input_shape") or task.batch.input_shape)
    images = training_images(None if data is None else str(data), known)
    made_folder(folder)
    space, origin = task.space, Origin(task.origin.scheme, task.origin.seed)
    if isinstance(space, Space):
        subject = Subject.of(space, arch, num_classes=classes, input_shape=shape, weights=given, origin=origin)
        return export(subject, folder, onnx=onnx, also=also, images=images)
    module = module_of(space, arch, replace(task.batch, num_classes=classes, input_shape=shape), origin)
    wanted = Wanted(onnx, also, images)
    return export_module(module, space.text(arch), folder, input_shape=shape, weights=given, wanted=wanted)
