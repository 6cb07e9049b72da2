"""What the surrogates of `bayes` believe of the first goal, for people: see `Suggester.belief`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from automl.core import Constraint, Goal, Trial, TrialState, ranking
from search_spaces import Space
from workers.protocol import Params

from .bayes.data import Array, TrialReader
from .bayes.kernel import NEARLY_EXACT, Encoder
from .bayes.model import EnsembleGP, Fitter, Knee
from .bayes.suggester import one_thread
from .bayes.surrogates import Surrogates

MAX_VALUE = 1e150  # the square of a greater value overflows
NUM_DRAWS = 120  # of each member of the ensemble
MIN_TRIALS = 6  # with a value, for a model
MIN_JUDGED = 8  # fewer trials say nothing of a model
SIGNIFICANCE = 0.05


class Belief:
    """A Gaussian process of the first goal, and the models of failures and constraints.

    If two runs of a configuration have the same value, the goal may be deterministic. A second
    process, nearly without noise, then counts as much as that is likelier than a coincidence: two
    normal values of deviation s, rounded to steps of r, agree with probability r / (2 sqrt(pi) s).

    Args:
        seed: of everything random; history: every trial that has ended.
        values: the whole trials, with their values.

    Attributes:
        trustworthy: whether it predicts trials that it has not seen.
    """

    def __init__(
        self,
        space: Space,
        goals: Sequence[Goal],
        constraints: Sequence[Constraint],
        seed: int,
        history: Sequence[Trial],
        values: Sequence[tuple[Trial, float]],
    ) -> None:
        self._space = space
        self._sign = -1.0 if goals[0].maximize else 1.0
        found = np.array([value for _, value in values])
        self._log = "quality" not in goals[0].aspects and found.min() > 0
        losses = self._sign * (np.log(found) if self._log else found)
        self._transform = Knee(losses)
        self._positive = found.min() >= 0  # an error or a time is never negative
        fitter = Fitter.of_aspects(space, goals[0].aspects, seed)
        with one_thread():
            unit = space.encode([trial.params for trial, _ in values])
            targets, _ = self._transform(torch.from_numpy(losses))
            self._model, rows = fitter.fit(unit, targets.numpy())
            data = TrialReader(space, goals, [one.metric for one in constraints])(history)
            surrogates = Surrogates(space, goals, constraints, seed)
            self._failures, self._bounds = surrogates.failures(data), surrogates.bounds(data)
        self._encoder: Encoder = fitter.encoder
        trials = [values[row][0] for row in rows]
        self._params = [trial.params for trial in trials]
        self._models = [(self._model, 1.0)]  # with their probabilities
        if pair := ranking.deterministic(history, goals[0]):
            again = next(trial for trial in history if trial.number == pair[1])
            step = float(np.diff(np.unique(found)).min())
            luck = min(step / (2 * math.sqrt(math.pi) * self.noise(again.params) + 1e-300), 1.0)
            with one_thread():
                exact, _ = Fitter(fitter.encoder, seed, NEARLY_EXACT).fit(unit, targets.numpy())
            self._models = [(self._model, luck / (1 + luck)), (exact, 1 / (1 + luck))]
        firsts = [trial.replicate_of is None for trial in trials]
        self._repeated = not all(firsts)
        self.trustworthy = _predicts(self._only(firsts))  # the first run tells further ones

    def draws(self, params: Sequence[Params], doubted: Params | None = None) -> Array:
        """Draws of the goal's mean over runs of `m` configurations, together: `draws x m`.

        Args:
            doubted: a configuration whose own run may have been luck. If no configuration has run
                twice, noise and a rough surface look alike: half of the draws then leave it out.
        """
        models = self._models
        if doubted in self._params and not self._repeated and len(self._params) > 2:
            models = [*models, (self._only([one != doubted for one in self._params]), 1.0)]
        generator, at = torch.Generator().manual_seed(0), self._encoder(self._space.encode(params))
        drawn = [
            model.draws(at, round(NUM_DRAWS * share), generator).flatten(0, 1)
            for model, share in models
        ]
        # The transform is not valid beyond the worst.
        return self._value(torch.cat(drawn).clamp(max=float(self._model.y.max())))

    def expected(self, params: Sequence[Params]) -> Array:
        """The expected value of the goal for each of `m` configurations."""
        at = self._encoder(self._space.encode(params))
        means = [share * model.moments(at)[0].mean(0) for model, share in self._models]
        return self._value(torch.stack(means).sum(0))

    def noise(self, params: Params) -> float:
        """Standard deviation of the goal between runs of one configuration."""
        mean, _ = self._model.moments(self._encoder(self._space.encode([params])))
        share = self._models[0][1]  # without a coincidence there is no noise
        half = share * float(self._model.kernel.noise.detach().sqrt().median()) / 2
        ends = self._value(mean.mean() + torch.tensor([-half, half], dtype=torch.float64))
        return float(np.abs(np.diff(ends))[0])

    def success(self, params: Sequence[Params]) -> Array:
        """The probability that a trial succeeds and keeps every constraint, for each of `m`."""
        unit = self._space.encode(params)
        log = self._failures.log_probability(unit)
        log = log + sum(bound.log_feasibility(unit) for bound in self._bounds)
        return np.asarray(log.exp().numpy(), dtype=np.float64)

    def _only(self, kept: Sequence[bool]) -> EnsembleGP:
        rows = torch.tensor(kept).nonzero()[:, 0]
        return EnsembleGP(self._model.kernel, self._model.X[rows], self._model.y[:, rows])

    def _value(self, transformed: Tensor) -> Array:
        raw = self._sign * self._transform.untransform(transformed)[0].numpy()
        found = np.exp(np.clip(raw, -700, 700)) if self._log else raw
        return np.asarray(np.maximum(found, 0.0) if self._positive else found, dtype=np.float64)


def belief(
    space: Space,
    goals: Sequence[Goal],
    constraints: Sequence[Constraint],
    seed: int,
    history: Sequence[Trial],
) -> Belief | None:
    """The belief; None with fewer than six different configurations or no two values.

    Only whole trials count: one that was stopped early says little of its end.
    """
    history = [trial for trial in history if space.legal(trial.params)]
    values = [
        (trial, value)
        for trial in history
        if trial.state is TrialState.COMPLETED
        and (value := ranking.value(trial, goals[0], constraints)) is not None
        and abs(value) < MAX_VALUE
    ]
    if len(values) < MIN_TRIALS or len({value for _, value in values}) < 2:
        return None
    return Belief(space, goals, constraints, seed, history, values)


def _predicts(model: EnsembleGP) -> bool:
    """Whether it predicts each trial from the others: better than a constant, and in their order.

    With n trials and a rank correlation of r, t = r sqrt((n - 2) / (1 - r^2)) has a Student
    distribution with n - 2 degrees of freedom if the true correlation is 0 (Kendall and Stuart,
    "The Advanced Theory of Statistics", volume 2, section 31.18, 1973).
    """
    from scipy.stats import spearmanr

    mean, variance = model.leave_one_out()
    y, n = model.y[0], model.y.shape[1]
    if n < 3 or bool((mean.mean(0) == mean.mean(0)[0]).all()):
        return False
    ranks = spearmanr(mean.mean(0).numpy(), y.numpy(), alternative="greater")
    below = torch.special.ndtr((y - mean) / variance.sqrt()).mean(0)
    covered = float(((below - 0.5).abs() <= 0.45).double().mean())
    density = -0.5 * (y - mean).square() / variance - 0.5 * variance.log()
    density = torch.logsumexp(density, 0) - math.log(len(mean))
    others = (y.sum() - y) / (n - 1)
    spread = ((y.square().sum() - y.square()) / (n - 1) - others.square()).clamp(min=1e-6)
    constant = -0.5 * (y - others).square() / spread - 0.5 * spread.log()
    reliable = float(density.mean()) > float(constant.mean()) - 0.1 and covered >= 0.6
    return bool(ranks.pvalue < SIGNIFICANCE and (reliable or n < MIN_JUDGED))
