"""The default suggester: Bayesian optimisation of mixed, conditional, noisy, partly failing spaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from automl.goals import Constraint, Goal
from automl.suggesters.base import Suggester
from automl.trial import Trial
from search_spaces import Space
from workers.protocol import Params

from .acquisition import best_predicted, log_expected_improvement
from .candidates import Lattice
from .data import Array, Data, collect
from .encoding import Encoder
from .feasibility import Feasibility
from .gp import Ensemble
from .models import Fitter, fit_losses

Score = Callable[[Array], Tensor]


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

    Args:
        space, goals, constraints, seed: see `Suggester`.
    """

    name: ClassVar[str] = "bayes"

    def __init__(
        self, space: Space, goals: Sequence[Goal], constraints: Sequence[Constraint] = (), *, seed: int = 0
    ) -> None:
        super().__init__(space, goals, constraints, seed=seed)
        self.lattice = Lattice(space)
        encoder = Encoder(space)
        self.fitter = Fitter(encoder, encoder.prior(), seed)
        self.success_fitter = Fitter(encoder, encoder.prior().with_noise(np.log(0.02), 1.0), seed)
        self.num_initial = min(max(self.lattice.num_parameters, 4), 10)

    def suggest(self, history: Sequence[Trial], pending: Sequence[Trial], count: int = 1) -> list[Params]:
        """See `Suggester.suggest`."""
        with one_thread():
            others = [c.metric for c in self.constraints if c.metric not in {g.metric for g in self.goals}]
            data = collect(self.space, history, self.goals, others)
            waiting = [t.params for t in pending if self.space.legal(t.params)]
            taken = {self.space.key(t.params) for t in [*history, *pending] if self.space.legal(t.params)}
            found: list[Params] = []
            for i in range(count):
                rng = np.random.default_rng([self.seed, len(history), len(pending), i])
                params = self._one(data, waiting + found, taken, rng)
                if params is None:
                    break
                found.append(params)
                taken.add(self.space.key(params))
            return found

    def _one(self, data: Data, waiting: list[Params], taken: set[object], rng: np.random.Generator) -> Params | None:
        succeeded = ~data.failed
        ahead = self.space.encode(waiting) if waiting else np.empty((0, data.unit.shape[1]))
        feasibility = Feasibility(self.success_fitter, data.unit, data.failed)
        if len(data) + len(ahead) < self.num_initial or succeeded.sum() < min(5, self.num_initial):
            return self._spread(data, ahead, feasibility, taken, rng)
        unit, losses = data.unit[succeeded], data.metrics[self.goals[0].metric][succeeded]
        model, _ = fit_losses(self.fitter, unit, losses)
        score = self._score(model, ahead, feasibility)
        order = np.argsort(losses, kind="stable")
        return self._search(score, unit[order[:10]], taken, rng)

    def _score(self, model: Ensemble, ahead: Array, feasibility: Feasibility) -> Score:
        encoder, count = self.fitter.encoder, len(model.features)
        index = best_predicted(model, count)
        if len(ahead):
            model = model.believe(encoder(ahead))

        def score(unit: Array) -> Tensor:
            return log_expected_improvement(model, encoder(unit), index) + feasibility.log_probability(unit)

        return score

    def _search(self, score: Score, best: Array, taken: set[object], rng: np.random.Generator) -> Params | None:
        pool = np.concatenate(
            [
                self.lattice.everywhere(rng, 800),
                self.lattice.near(rng, best[:1], 300, (0.003, 0.3)),
                self.lattice.near(rng, best[:5], 400, (0.01, 0.3)),
                self.lattice.crossed(rng, best, 100),
            ]
        )
        values = score(pool).numpy()
        for scales in ((0.01, 0.2), (0.003, 0.05), (0.001, 0.02)):
            top = pool[np.argsort(-values, kind="stable")[:4]]
            more = self.lattice.near(rng, top, 150, scales)
            pool, values = np.concatenate([pool, more]), np.concatenate([values, score(more).numpy()])
        return self._first_new(pool[np.argsort(-values, kind="stable")], taken, rng)

    def _spread(
        self, data: Data, ahead: Array, feasibility: Feasibility, taken: set[object], rng: np.random.Generator
    ) -> Params | None:
        """Far from what was tried, among configurations likely to succeed."""
        pool = self.lattice.everywhere(rng, 64 if data.failed.sum() == 0 else 256)
        known = self.fitter.encoder(np.concatenate([data.unit, ahead])).z
        if len(known) == 0:
            return self._first_new(pool, taken, rng)
        distance = torch.cdist(self.fitter.encoder(pool).z, known).min(1).values
        value = distance.clamp(min=1e-9).log() + 2.0 * feasibility.log_probability(pool)
        return self._first_new(pool[torch.argsort(-value, stable=True).numpy()], taken, rng)

    def _first_new(self, pool: Array, taken: set[object], rng: np.random.Generator) -> Params | None:
        for start in range(0, len(pool), 32):
            for params in self.space.decode(pool[start : start + 32]):
                if self.space.key(params) not in taken and self.space.legal(params):
                    return params
        for params in self.space.sample(rng, 200):
            if self.space.key(params) not in taken:
                return params
        return None
