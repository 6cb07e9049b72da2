"""The default suggester: Bayesian optimisation of mixed, conditional, noisy, partly failing spaces."""

from __future__ import annotations

import logging
import math
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from automl.core.goals import Constraint, Goal
from automl.core.trial import Trial
from automl.suggesters._draws import keys
from automl.suggesters.base import Suggester
from search_spaces import Space
from workers.protocol import Params

from .acquisition.feasibility import Feasibility
from .batch import MANY, MOST_PENDING, in_bulk
from .candidates import Lattice
from .design import Start
from .forced_exploration import NEGLECTED_EVERY, Neglected, among, leaders, neglected
from .model.calibration import Calibration, calibrate
from .model.data import Array, Data, Reader
from .model.external import Build
from .model.gp import Ensemble
from .model.surrogates import Surrogates
from .model.sweep_posterior import Beliefs
from .search import Search

if TYPE_CHECKING:
    from .model.export import EnsembleGP

_LOG = logging.getLogger(__name__)
NUM_START = 5
STALLED = 6  # trials without a better one
BOLD = 0.1  # probability of success that is demanded of a choice of which all trials failed
APART = 4.0  # how much it weighs, in log improvement, that a value is not one with which these trials failed
FILL_EVERY = 3  # suggestions, where the surrogate cannot be believed
LEAST_SUCCESSES = 2
LEAST_TRIALS = 10  # before which the surrogate is not trusted to say that little is left to gain


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread, so that rounding does not depend on the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class BayesSuggester(Suggester):
    """Expected improvement under Gaussian processes whose hyperparameters are averaged over.

    It begins with configurations that are far from each other, goes on to a surrogate for each goal and constraint
    and a classifier for each kind of failure, and maximises the logarithm of the expected (hypervolume) improvement
    times the probability of success over many candidates everywhere and near the best.

    Args:
        space, goals, constraints, seed: see `Suggester`.
        surrogate: makes a BoTorch model of a goal in the place of the ensemble, see `external`.
    """

    name: ClassVar[str] = "bayes"

    def __init__(
        self,
        space: Space,
        goals: Sequence[Goal],
        constraints: Sequence[Constraint] = (),
        *,
        seed: int = 0,
        surrogate: Build | None = None,
    ) -> None:
        super().__init__(space, goals, constraints, seed=seed)
        self.surrogates_ = Surrogates(space, self.goals, self.constraints, seed, surrogate)
        self.reader = Reader(space, self.goals, [c.metric for c in self.constraints])
        self.search = Search(Lattice(space))
        self.start = Start(self.search.lattice, NUM_START)
        self._doubted = False

    def suggest(
        self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1
    ) -> list[Params]:
        """See `Suggester.suggest`."""
        with one_thread():
            legal = self._legal(history)
            data = self._collect(legal)
            ahead = self._legal(pending)
            waiting = [trial.params for trial in ahead]
            taken = keys(self.space, legal, ahead)
            beliefs = self._believe(data, len(waiting))
            if count > MANY or len(waiting) > MOST_PENDING:
                best = data.unit[self.surrogates_.best_rows(data)]
                rng = np.random.default_rng([self.seed, len(history), len(pending)])
                unit = (
                    self.space.encode(waiting)
                    if waiting
                    else np.empty((0, len(self.space.parameters)))
                )
                return in_bulk(self.search.lattice, beliefs, best, unit, taken, count, rng)
            found: list[Params] = []
            for i in range(count):
                rng = np.random.default_rng([self.seed, len(history), len(pending), i])
                if beliefs is None and i:
                    beliefs = self._believe(data, len(waiting) + i)
                params = self._one(data, beliefs, [*waiting, *found], taken, rng)
                if params is None:
                    break
                found.append(params)
                taken.add(self.space.key(params))
            return found

    def diagnose(self, history: Sequence[Trial]) -> list[Calibration]:
        """Leave-one-out calibration of the surrogate of every goal and constraint; empty before there is one."""
        with one_thread():
            data = self._collect(self._legal(history))
            return self.surrogates_.calibrations(data) if self.surrogates_.possible(data) else []

    def surrogates(self, history: Sequence[Trial]) -> dict[str, EnsembleGP | Any]:
        """The surrogate of every goal as a GPyTorch and BoTorch model, by metric; see `export`."""
        from .model.export import export

        with one_thread():
            data = self._collect(self._legal(history))
            if not self.surrogates_.possible(data):
                return {}
            beliefs = self.surrogates_.fit(data)
            models = {g.metric: b.model for g, b in zip(self.goals, beliefs.goals, strict=True)}
            return {
                name: export(m) if isinstance(m, Ensemble) else m.model
                for name, m in models.items()
            }

    def expected_gain(self, history: Sequence[Trial], params: Params) -> float | None:
        """See `Suggester.expected_gain`: near the best the surrogate's scale is linear in the goal."""
        with one_thread():
            data = self._collect(self._legal(history))
            if (
                len(self.goals) > 1
                or len(data) < LEAST_TRIALS
                or not self.surrogates_.possible(data)
            ):
                return None
            beliefs = self.surrogates_.fit(data)
            transform = beliefs.goals[0].transform
            if transform is None or not beliefs.holds.any():
                return None
            gain = math.exp(float(beliefs.score(self.space.encode([params]))[0]))
        return gain * transform.scale * transform.spread

    def _legal(self, trials: Sequence[Trial]) -> list[Trial]:
        """Without those of another space."""
        return self.reader.legal(trials)

    def _collect(self, history: Sequence[Trial]) -> Data:
        return self.reader(history)

    def _believe(self, data: Data, num_ahead: int) -> Beliefs | None:
        """The surrogates, or None while the start lasts."""
        enough = len(data) + num_ahead >= NUM_START and int((~data.failed).sum()) >= LEAST_SUCCESSES
        return self.surrogates_.fit(data) if enough and self.surrogates_.possible(data) else None

    def _one(
        self,
        data: Data,
        beliefs: Beliefs | None,
        waiting: list[Params],
        taken: set[Hashable],
        rng: np.random.Generator,
    ) -> Params | None:
        ahead: Array = (
            self.space.encode(waiting) if waiting else np.empty((0, len(self.space.parameters)))
        )
        if beliefs is None:
            return self._first(data, ahead, taken, rng)
        if self._doubt(beliefs) is not None and len(taken) % FILL_EVERY == 0:
            return self._fill(data, ahead, beliefs.feasibility, taken, rng)
        smoothed = beliefs.smoothed(len(data))
        best = data.unit[self.surrogates_.best_rows(data, smoothed)]
        number, current = len(taken), beliefs.with_pending(ahead)
        stalled = len(data) - self.surrogates_.last_progress(data, smoothed) >= STALLED
        choice = neglected(self.search.lattice, data, ahead, number, stalled=stalled)
        found = self._try(choice, data, current, best, taken, rng) if choice is not None else None
        if found is not None:
            return found
        local = stalled and number % NEGLECTED_EVERY == 1
        if (
            local and number // NEGLECTED_EVERY % 2
        ):  # luck or a narrow optimum: what lies beside it tells
            best = data.unit[self.surrogates_.best_rows(data)]
        return self.search.maximise(
            current.score, best, taken, rng, sketch=current.sketch().score, local=local
        )

    def _try(
        self,
        choice: Neglected,
        data: Data,
        beliefs: Beliefs,
        best: Array,
        taken: set[Hashable],
        rng: np.random.Generator,
    ) -> Params | None:
        """A promising configuration with that choice; where all with it failed, one that has little else of theirs."""
        held = (choice.column, choice.value)
        if not choice.in_vain:
            return self.search.maximise(
                beliefs.score, best, taken, rng, held, sketch=beliefs.sketch().score
            )
        met, bold = data.unit[among(data.unit, *held)], beliefs.accepting(BOLD)

        def score(unit: Array) -> Tensor:
            return bold.score(unit) - APART * torch.from_numpy(self.start.overlap(unit, met))

        bases = np.concatenate([best, leaders(self.search.lattice, data, choice.column)])
        return self.search.changed(score, bases, taken, rng, held)

    def _first(
        self, data: Data, ahead: Array, taken: set[Hashable], rng: np.random.Generator
    ) -> Params | None:
        """A configuration of the start."""
        if not taken:
            middle = self.start.middle(rng)
            if middle is not None:
                return middle
        return self._fill(data, ahead, self.surrogates_.feasibility(data), taken, rng)

    def _fill(
        self,
        data: Data,
        ahead: Array,
        feasibility: Feasibility,
        taken: set[Hashable],
        rng: np.random.Generator,
    ) -> Params | None:
        """A configuration that differs from all others and is likely to succeed."""
        known = np.concatenate([data.unit, ahead])
        pool = self.start.pool(
            known, data.unit[~data.failed], int(data.failed.sum()), feasibility, rng
        )
        return self.search.first_new(pool, taken, rng)

    def _doubt(self, beliefs: Beliefs) -> Calibration | None:
        """Why the surrogate of a goal cannot be believed; said in the log the first time."""
        for goal, belief in zip(self.goals, beliefs.goals, strict=True):
            if isinstance(belief.model, Ensemble):
                found = calibrate(goal.metric, belief.model)
                if not found.believable:
                    if not self._doubted:
                        _LOG.warning(
                            "every third suggestion fills the space, for the surrogate predicts badly: %s",
                            found,
                        )
                    self._doubted = True
                    return found
        return None
