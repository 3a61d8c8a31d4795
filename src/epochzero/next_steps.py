"""The result of a search together with what people do next: judge it, train it, export it, look at it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epochzero.errors import UserError
from epochzero.spaces.base import Space
from epochzero.study import ask_tell, ranking, result
from epochzero.types import Origin

if TYPE_CHECKING:
    from epochzero.export import Exported
    from epochzero.study.task import Task
    from epochzero.train.images import Trained


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
        self, data: str | Path, *, recipe: str = "default", folder: str | Path | None = None, **changes: Any
    ) -> Trained:
        """Trains the winner on images by a recipe; `changes` are settings of the recipe, such as `epochs=10`.

        With a folder every epoch is kept, and the same call resumes.
        """
        from epochzero.train.image_data import load_images
        from epochzero.train.images import train_architecture
        from epochzero.train.recipes import recipe_of

        task, how = self.task, recipe_of(recipe, changes)
        images = load_images(Path(data), seed=task.origin.seed)
        place = None if folder is None else Path(folder)
        seed, device = task.origin.seed, task.device
        return train_architecture(task.space, self.winner.arch, images, how, place, seed=seed, device=device)

    def export(self, folder: str | Path, *, weights: str | Path | None = None, onnx: bool = True) -> Exported:
        """Writes the winner as code, weights, ONNX and a model card; `weights` is the folder of a training."""
        return exported(self.task, self.winner.arch, Path(folder), weights, onnx)

    def report(self, path: str | Path = "report.html", *, table: str | Path | None = None) -> Path:
        """Writes one HTML file about the run, which opens offline; the search needs a store on disk."""
        from epochzero import report

        if self.store is None:
            raise UserError("A report is made from a store on disk: search with store='run.db'.")
        subject = report.Subject(Path(self.store), None if table is None else Path(table), [], self.run)
        report.write(subject, Path(path))
        return Path(path)


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

        images, how = load_images(Path(data), seed=seed), recipe_of(recipe, changes)
        trained = {}
        for place, row in enumerate(self.scored[:top], 1):
            if row.name not in self.sources:
                raise UserError("The networks of an iterator are gone: rank a list or a dictionary to train them.")
            own = None if folder is None else Path(folder) / str(place)
            space, arch = self.sources[row.name]
            trained[row.name] = train_architecture(space, arch, images, how, own, seed=seed, device=device)
        return dict(sorted(trained.items(), key=lambda one: -one[1].history[-1]["test_accuracy"]))

    def export(
        self, folder: str | Path, *, name: str | None = None, weights: str | Path | None = None, onnx: bool = True
    ) -> Exported:
        """Writes the best network, or the one of a name, as a product; `weights` is the folder of a training."""
        row = self.best if name is None else self[name]
        if self.task is None or row.name not in self.sources:
            raise UserError("The networks of an iterator are gone: rank a list or a dictionary to export one.")
        space, arch = self.sources[row.name]
        return exported(replace(self.task, space=space), arch, Path(folder), weights, onnx)


class Study(ask_tell.Study):
    __doc__ = ask_tell.Study.__doc__
    kind = Result

    if TYPE_CHECKING:

        def result(self) -> Result: ...


def space_of_plans(space: Any) -> Space:
    """The same space; UserError for one whose networks are modules."""
    if not isinstance(space, Space):
        raise UserError(f"The space '{space.name}' gives modules and no plans: train them with your own loop.")
    return space


def exported(task: Task, arch: Any, folder: Path, weights: str | Path | None, onnx: bool) -> Exported:
    """Writes a network as code, or a module as its program, with weights, ONNX and a model card."""
    from epochzero.engine.space_networks import module_of
    from epochzero.export import Subject, export
    from epochzero.export.module import export_module
    from epochzero.export.weights import read_weights

    given = None if weights is None else read_weights(Path(weights))
    known = {} if given is None else given.identity
    classes = known.get("num_classes") or task.batch.num_classes
    shape = tuple(known.get("input_shape") or task.batch.input_shape)
    folder.mkdir(parents=True, exist_ok=True)
    space, origin = task.space, Origin(task.origin.scheme, task.origin.seed)
    if isinstance(space, Space):
        subject = Subject.of(space, arch, num_classes=classes, input_shape=shape, weights=given, origin=origin)
        return export(subject, folder, onnx=onnx)
    module = module_of(space, arch, replace(task.batch, num_classes=classes, input_shape=shape), origin)
    return export_module(module, space.text(arch), folder, input_shape=shape, weights=given, onnx=onnx)
