"""TPE: the choices of the better networks against those of the others, by Optuna.

Each place is a categorical parameter of its own. What was asked for before is told again with what is known of it, and
where nothing new comes, an architecture is drawn uniformly and told as one of the trials. A network without a score
is a failed trial. Optuna looks at all trials for each new one: a few milliseconds, more with every thousand.

Bergstra, Bardenet, Bengio, Kegl. Algorithms for hyper-parameter optimization. NeurIPS 2011; Akiba, Sano, Yanase, Ohta,
Koyama. Optuna. KDD 2019. arXiv:1907.10902
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from epochzero.errors import UserError, needed
from epochzero.registry import searches
from epochzero.study.methods.base import Choices, OneByOne, Sampler

DRAWS = 20


@searches.registers("tpe")
class TPE(OneByOne):
    """Tree-structured Parzen estimator over independent choices."""

    def __init__(self, space: Sampler, seed: int, *, startup: int = 10, batch: int = 1) -> None:
        if startup < 1:
            raise UserError(f"The search tpe starts with at least 1 random network, not {startup}.")
        super().__init__(space, seed, batch)
        self.of = Choices.of(space, "tpe")
        self.study, self.distributions = _study(seed, startup, self.of)
        self.trials: dict[Any, Any] = {}
        """of those that were asked for and not told yet"""
        self.merits: dict[Any, float | None] = {}

    def tell(self, archs: Sequence[Any], merits: Sequence[float | None]) -> None:
        for arch, merit in zip(archs, merits, strict=True):
            self.merits[arch] = merit
            self._tell(self.trials.pop(arch), merit)

    def _tell(self, trial: Any, merit: float | None) -> None:
        from optuna.trial import TrialState

        self.study.tell(trial, merit, state=TrialState.FAIL if merit is None else TrialState.COMPLETE)

    def _next(self) -> Any | None:
        for _ in range(DRAWS):
            trial = self.study.ask(self.distributions)
            arch: Any = tuple(self.of.choices[trial.params[str(place)]] for place in range(self.of.places))
            if arch not in self.unseen.seen and self.of.fits(arch):
                self.unseen.seen.add(arch)
                self.trials[arch] = trial
                return arch
            self._tell(trial, self.merits.get(arch))
        arch = super()._next()
        if arch is not None:
            index = {choice: i for i, choice in enumerate(self.of.choices)}
            self.study.enqueue_trial({str(place): index[choice] for place, choice in enumerate(arch)})
            self.trials[arch] = self.study.ask(self.distributions)
        return arch


def _study(seed: int, startup: int, of: Choices) -> tuple[Any, dict[str, Any]]:
    """Optuna's study, and one categorical distribution for each place."""
    optuna = needed("optuna", "The search tpe", "optuna")
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup)
        study = optuna.create_study(direction="maximize", sampler=sampler)
    finally:
        optuna.logging.set_verbosity(before)
    every = optuna.distributions.CategoricalDistribution(list(range(len(of.choices))))
    return study, {str(place): every for place in range(of.places)}
