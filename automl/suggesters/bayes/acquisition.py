"""The acquisition function: the logarithm of the value of a candidate, a sum of terms.

      log expected improvement, or hypervolume improvement
    + log probability that each constraint holds
    + log probability of success, far less if it is too low
    - power * log seconds, if time is limited
    + weight * log density of the user's prior

Every path of the suggester takes this sum: one suggestion, several, batches.

`prospect` says by the knowledge gradient what a run teaches, of a new configuration or of a known
one. After a run the best expected value among the tried configurations is at least as good, on
average, as before it (Frazier et al., "The knowledge-gradient policy for correlated normal
beliefs", 2009). One run alone may be too noisy to change the choice, so the gain is the largest of
1, 2, 4 and 8 runs, divided by their number (Frazier and Powell, "Paradoxes in learning and the
marginal value of information", 2010).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import LogExpectedImprovement, _ei_helper, _log_ei_helper
from botorch.models.model import Model, ModelList
from botorch.utils.multi_objective.box_decompositions.non_dominated import (
    FastNondominatedPartitioning,
)
from botorch.utils.sampling import manual_seed
from numpy.typing import NDArray
from torch import Tensor

from automl.core import Budget, Trial, TrialState
from automl.suggesters.base import Prospect
from automl.suggesters.user_prior import UserPrior
from search_spaces import Space

from .candidates import MIN_SUCCESSES, NUM_DESIGN
from .data import Array, TrialData, front
from .model import CHUNK, EnsembleGP, Fitter
from .quantities import LogGP
from .surrogates import SweepPosterior

FIRST_RISK = 0.42  # accepted probability of failure after the initial design
TARGET = 0.04  # share of failures at which the accepted risk stays as it is
MIN_RISK = 0.03
MAX_RISK = 0.7
POWER = 0.25  # of the mean over the ensemble, so that the least certain vector does not decide
BARRIER = 1e4  # loss of log value for each unit of missing probability
MARGIN = 0.1  # least distance of the reference from the front, in the front's extent
MIN_MARGIN = 0.05  # the same in standard deviations of all losses
MIN_SPREAD: Final = 0.1  # of the log seconds; below, all trials cost the same
BETA: Final = 10.0  # after this many trials the user's prior has the power 1

# Of the knowledge gradient:
MAX_DECISIONS = 60  # the best predicted configurations, one of which will be recommended
MAX_REPEATED = 5  # of these, the best that may run again
RUNS = (1.0, 2.0, 4.0, 8.0)
NUM_QUANTILES = 64  # of the observation
NUM_DRAWS = 64  # of the function, from each hyperparameter vector

Term = Callable[[Array], Tensor]
MakeAcquisition = Callable[[Model, Tensor, Tensor], AcquisitionFunction]


@dataclass(frozen=True)
class Acquisition:
    """Log value of candidates.

    Args:
        posterior: of the sweep.
        demanded: probability of success, below which the value is far below all others.
        terms: further terms, such as the cost and the user's prior.
        make: one of BoTorch's acquisitions instead of the improvement, from a model, the
            coordinates of the trials `n x c` and their predicted values `n x g` (larger is better);
            its values are logarithms. None for ours.
    """

    posterior: SweepPosterior
    demanded: float = 0.0
    terms: Sequence[Term] = ()
    make: MakeAcquisition | None = None

    def __call__(self, unit: Array) -> Tensor:
        """Log value of `m x d` candidates, `m`."""
        parts = np.split(unit, range(CHUNK, len(unit), CHUNK))
        return torch.cat([self._log_improvement(part) + self.against(part) for part in parts])

    def against(self, unit: Array) -> Tensor:
        """All terms beside the improvement, `m`: constraints, success, and the further ones."""
        success = self.posterior.failures.log_probability(unit)
        total = success - BARRIER * (self.demanded - success.exp()).clamp(min=0.0)
        for constraint in self.posterior.constraints:
            total = total + constraint.log_feasibility(unit)
        for term in self.terms:
            total = total + term(unit)
        return total

    def drawn(self, unit: Array, count: int, generator: torch.Generator) -> Tensor:
        """Thompson draws of the goal, less what speaks against a candidate otherwise, `s x m`.

        Of several goals it is the smallest of their weighted distances from their bests, with
        weights drawn too (Knowles, "ParEGO", 2006).
        """
        found = torch.full((count, len(unit)), torch.inf, dtype=torch.float64)
        weights = torch.rand((len(self.posterior.goals), count, 1), generator=generator)
        for goal, weight in zip(self.posterior.goals, weights, strict=True):
            Z = goal.encode(unit)
            if isinstance(goal.model, EnsembleGP):
                value = goal.model.draw(Z, count, generator)
            else:
                with manual_seed(int(torch.randint(1 << 31, (), generator=generator))):
                    drawn = goal.model.posterior(Z).rsample(torch.Size([count]))
                value = drawn.reshape(-1, len(Z))[:count].detach()
            value = value - value.max(1, keepdim=True).values
            found = found.minimum(value if len(weights) == 1 else weight * value)
        against = self.against(unit).clamp(min=-1e3)
        return found + against * (1.0 - found.min(1, keepdim=True).values)

    def _log_improvement(self, unit: Array) -> Tensor:
        goals = self.posterior.goals
        if not self.posterior.feasible.any():
            return torch.zeros(len(unit), dtype=torch.float64)
        Z = goals[0].encode(unit)
        if self._botorch is not None:
            with torch.no_grad():
                return torch.as_tensor(self._botorch(Z[:, None]))
        if len(goals) > 1:
            return self._log_hypervolume(unit)
        model = goals[0].model
        assert isinstance(model, EnsembleGP)
        mean, variance = model.improvement(Z, self._best)
        deviation = variance.sqrt()
        each = deviation.log() + _log_ei_helper(mean / deviation)
        return (torch.logsumexp(POWER * each, 0) - math.log(len(each))) / POWER

    @cached_property
    def _best(self) -> Tensor:
        """The feasible trial that each hyperparameter vector predicts to be the best, `K`."""
        first = self.posterior.goals[0]
        allowed = torch.from_numpy(self.posterior.feasible[first.rows])
        mean, _ = first.moments(first.X[: len(first.rows)])
        return mean.masked_fill(~allowed & allowed.any(), -torch.inf).argmax(1)

    @cached_property
    def _botorch(self) -> AcquisitionFunction | None:
        """BoTorch's acquisition; of its models LogEI if none was given."""
        goals = self.posterior.goals
        model = goals[0].model
        if self.make is None and (isinstance(model, EnsembleGP) or len(goals) > 1):
            return None
        values, rows = predicted(self.posterior)
        known = self.posterior.feasible[rows]
        X = goals[0].X[np.flatnonzero(np.isin(goals[0].rows, rows[known]))]
        Y = torch.from_numpy(values[known])
        if self.make is None:
            return LogExpectedImprovement(model, best_f=Y.max())
        return self.make(model if len(goals) == 1 else ModelList(*(g.model for g in goals)), X, Y)

    def _log_hypervolume(self, unit: Array) -> Tensor:
        """Log expected hypervolume improvement over the predictions at the feasible trials, `m`."""
        lower, upper = self._cells
        gain = torch.ones((len(lower), len(unit)), dtype=torch.float64)
        for goal, low, high in zip(self.posterior.goals, lower.T, upper.T, strict=True):
            mean, variance = goal.moments(goal.encode(unit))
            deviation = variance.sqrt()
            # E[max(y - bound, 0)] of normal y, averaged over the ensemble
            above, beyond = (
                (deviation * _ei_helper((mean - bound[:, None, None]) / deviation)).mean(1)
                for bound in (low, high)
            )
            gain *= (above - beyond).clamp(min=0.0)
        return gain.sum(0).clamp(min=1e-300).log()

    @cached_property
    def _cells(self) -> tuple[Tensor, Tensor]:
        """Lower and upper corners of the boxes that no feasible trial dominates, `c x g` each."""
        values, rows = predicted(self.posterior)
        known = np.flatnonzero(self.posterior.feasible[rows])
        reference = reference_point(-values, known[front(-values[known])])
        Y, point = torch.from_numpy(values[known]), torch.from_numpy(-reference)
        found = FastNondominatedPartitioning(point, Y).get_hypercell_bounds()
        return found[0], found[1].clamp(max=1e6)


def predicted(posterior: SweepPosterior) -> tuple[Array, NDArray[np.intp]]:
    """Posterior means `n x g` at the trials that have every goal, and the rows of these."""
    common = posterior.goals[0].rows
    for goal in posterior.goals[1:]:
        common = common[np.isin(common, goal.rows)]
    columns = []
    for goal in posterior.goals:
        X = goal.X[torch.from_numpy(np.searchsorted(goal.rows, common))]
        columns.append(goal.moments(X)[0].mean(0).numpy())
    return np.stack(columns, 1), common


def reference_point(losses: Array, rows: NDArray[np.intp]) -> Array:
    """The reference point of the hypervolume, `g`: the worst of all trials, and beyond the front.

    With a point close to the front, extending the ends of the front would gain nothing (see
    Ishibuchi et al., "How to specify a reference point in hypervolume calculation", 2018). Trials
    that break a constraint count too: they show how far the front may extend.

    Args:
        losses: `n x g` of all trials, transformed, so that outliers are not far.
        rows: of the front.
    """
    worst, best = losses[rows].max(0), losses[rows].min(0)
    margin = np.maximum(MARGIN * (worst - best), MIN_MARGIN * losses.std(0))
    return np.asarray(np.maximum(losses.max(0), worst + np.maximum(margin, 1e-6)))


def accepted_risk(failed: NDArray[np.bool_]) -> float:
    """The probability of failure to accept after `n` trials.

    A search that maximises anything picks candidates with an overestimated probability. So each
    trial after the initial design adds `TARGET` less its failure (0 or 1) to the logarithm to base
    2, and the share of failures tends to the target: the step of adaptive conformal inference
    (Gibbs and Candes, "Adaptive conformal inference under distribution shift", 2021).
    """
    succeeded = np.flatnonzero(~failed)
    design = max(NUM_DESIGN, int(succeeded[MIN_SUCCESSES - 1]) + 1) if len(succeeded) > 1 else None
    later = failed[design:] if design else failed[:0]
    steps = TARGET * len(later) - float(later.sum())
    risk = FIRST_RISK * math.exp2(min(steps, 60.0))  # very many successes must not overflow
    return min(max(risk, MIN_RISK), MAX_RISK)


def cost_term(
    space: Space, budget: Budget, fitter: Fitter, history: Sequence[Trial]
) -> Term | None:
    """The term of the seconds of a trial after these trials; None if cost does not count.

    The expected gain is divided by the expected seconds, learned from completed trials, to a power.
    """
    power = cost_power(budget, history)
    done = [
        trial
        for trial in history
        if trial.state is TrialState.COMPLETED and trial.seconds > 0 and space.legal(trial.params)
    ]
    seconds = np.array([trial.seconds for trial in done])
    if power <= 0 or len(done) < NUM_DESIGN or np.log(seconds).std() < MIN_SPREAD:
        return None
    unit = space.encode([trial.params for trial in done])
    cost = LogGP.fit(fitter, unit, seconds)
    return lambda unit: -power * (cost.moments(unit)[0] * cost.scale + cost.centre)


def cost_power(budget: Budget, history: Sequence[Trial]) -> float:
    """The power of the seconds: the share of the budget of time that is left; 0 without one.

    So cheap trials come first, and the best ones at the end (Lee et al., "Cost-aware Bayesian
    optimization", 2020). If the trials run out before the time does, cost does not count.
    """
    ended = max((t.ended for t in history if t.ended is not None), default=0.0)
    worked = sum(trial.seconds for trial in history) if budget.worker_time else 0.0
    share = replace(budget, trials=None).spent(time=ended, worker_time=worked)
    if share is None or (budget.trials is not None and len(history) / budget.trials > share):
        return 0.0
    return max(0.0, 1.0 - share)


def prior_term(prior: UserPrior, num_trials: int) -> Term:
    """The term of the user's prior after this many trials; 0 if there is none (piBO).

    Hvarfner et al., "piBO: Augmenting acquisition functions with user beliefs for Bayesian
    optimization", ICLR 2022: the acquisition is multiplied by the prior to the power beta / n, so
    that the data outweigh it in the end.
    """
    weight = BETA / max(1, num_trials)
    return lambda unit: weight * torch.from_numpy(prior.log_density(unit))


def prospect(
    acquisition: Acquisition, data: TrialData, unit: Array, others: Array
) -> Prospect | None:
    """What going on promises, and whether a known configuration rather runs again.

    Args:
        acquisition: of the history and what is pending, with one goal.
        data: the history.
        unit: `1 x d`, the new configuration that may run instead; `0 x d` if there is none.
        others: `m x d`, configurations one of which may be the best.

    Returns:
        None if no known configuration is feasible, or if the surrogate is not the ensemble.
    """
    goal = acquisition.posterior.goals[0]
    model, transform = goal.model, goal.transform
    first = np.array([data.trials[row].replicate_of is None for row in goal.rows.tolist()])
    rows = np.flatnonzero(acquisition.posterior.feasible[goal.rows] & first)
    if not isinstance(model, EnsembleGP) or transform is None or not len(rows):
        return None
    mean = model.moments(goal.X[torch.from_numpy(rows)])[0].mean(0)
    rows = rows[torch.argsort(-mean, stable=True)[:MAX_DECISIONS].numpy()]
    trials = [data.trials[row] for row in goal.rows[rows].tolist()]
    done = [i for i, t in enumerate(trials) if t.state is TrialState.COMPLETED][:MAX_REPEATED]
    known = goal.X[torch.from_numpy(rows)]
    X = torch.cat([known, goal.encode(unit)])
    candidates = [*done, *range(len(rows), len(X))]
    repeat = None
    if candidates:
        place = np.concatenate([data.unit[goal.rows[rows[done]]], unit])
        worth = knowledge_gains(model, X, candidates, len(rows))
        chosen = int((worth * acquisition.against(place).exp()).argmax())
        repeat = trials[done[chosen]].number if chosen < len(done) else None
    best, variance = model.moments(known[:1])
    error = float((variance.mean() + best.var(correction=0)).sqrt())
    every = torch.cat([X, goal.encode(others)])
    values = model.draws(every, NUM_DRAWS, torch.Generator().manual_seed(len(data.unit)))
    gain = float((values.max(2).values - values[:, :, 0]).mean())
    scale = transform.scale * transform.spread
    return Prospect(gain * scale, error * scale, repeat)


def knowledge_gains(model: EnsembleGP, X: Tensor, rows: list[int], tried: int) -> Tensor:
    """Expected improvement of the best mean by a run, for each of some rows.

    Args:
        model: of minus the goal's transformed loss.
        X: `m x c`; the first `tried` have run, so that one of them would be recommended now. A
            further one can be recommended once it has run.
        rows: `r`, of the candidates.
    """
    mean, covariance = model.joint(X)
    before = mean[:, :tried].max(1).values  # K
    own = covariance.diagonal(dim1=1, dim2=2)[:, rows]
    quantiles = (torch.arange(NUM_QUANTILES, dtype=torch.float64) + 0.5) / NUM_QUANTILES
    counts = torch.tensor(RUNS, dtype=torch.float64)[:, None, None]
    deviation = (own + model.kernel.noise.detach() / counts).sqrt()  # runs x K x r
    slope = covariance[:, rows] / deviation[..., None]  # runs x K x r x m
    after = mean[:, None, :, None] + slope[..., None] * torch.special.ndtri(quantiles)
    highest = after[..., :tried, :].max(3).values  # runs x K x r x q
    itself = after[:, :, range(len(rows)), rows]
    gain = torch.maximum(highest, itself).mean(3) - before[:, None]
    total = gain.clamp(min=0.0).pow(POWER).mean(1).pow(1 / POWER) / counts[:, 0]
    return total.max(0).values
