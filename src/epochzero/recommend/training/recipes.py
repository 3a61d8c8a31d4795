"""Recipes: how the networks of a search and the baselines are trained in the end.

    tuned       AdamW on shuffled rows, early stopping, the best state; numbers as intervals, a linear model beside
    published   NASRec's: one pass in the order of the file, Adagrad, a rate that rises and falls; raw numbers

Both train without layer norms and with biases, as NASRec does; its supernet has norms. docs/results/recommenders.md
says what each part of `tuned` is worth.

NASRec: spaces/nasrec.py
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from epochzero.errors import UserError
from epochzero.recommend.spaces.nasrec_network import Form
from epochzero.recommend.training.settings import Settings
from epochzero.registry import check_known

FORMS = {"use_layernorm": "norms", "intervals": "intervals", "wide": "wide"}
"""options of the network's form"""


@dataclass(frozen=True)
class Recipe:
    settings: Settings = Settings()
    form: Form = Form(norms=False)

    def changed(self, options: Mapping[str, Any]) -> Recipe:
        """The recipe with these options, which are fields of `Settings` or names in `FORMS`."""
        form = {
            FORMS[name]: _typed(getattr(self.form, FORMS[name]), value)
            for name, value in options.items()
            if name in FORMS
        }
        kinds = {one.name: one.default for one in fields(Settings)}
        own = {name: _typed(kinds[name], value) for name, value in options.items() if name in kinds}
        if form.get("intervals", 0) < 0:
            raise UserError(f"A number cannot have {form['intervals']} intervals: give 0 or more.")
        return Recipe(replace(self.settings, **own), self.form._replace(**form))

    def told(self) -> dict[str, Any]:
        return {"settings": self.settings.told(), "form": self.form._asdict()}

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Recipe:
        return cls(Settings(**told["settings"]), Form(**told["form"]))


def _typed(default: Any, value: Any) -> Any:
    return bool(value) if isinstance(default, bool) else value


TUNED = "tuned"
RECIPES = {
    TUNED: Recipe(
        Settings(
            batch_size=256,
            epochs=30,
            highest=1e-3,
            optimizer="adam",
            embedding_scale=0.01,
            shuffle=True,
            patience=2,
            falls=1,
        ),
        Form(norms=False, intervals=32, wide=True),
    ),
    "published": Recipe(),
}


def recipe(name: str) -> Recipe:
    check_known(name, RECIPES, f"No recipe is called '{name}'")
    return RECIPES[name]
