"""Predicts the learning curves of a sweep, values a slice of each, and finds new configurations."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from botorch.acquisition.analytic import _log_ei_helper
from numpy.typing import NDArray
from torch import Tensor

from automl.core import Constraint, Goal, Trial, TrialState
from automl.core.trial import violation
from automl.suggesters.base import SearchContext
from automl.suggesters.bayes.acquisition import prior_term
from automl.suggesters.bayes.candidates import CandidateSampler
from automl.suggesters.bayes.kernel import Encoder
from automl.suggesters.domain import Domain
from automl.suggesters.user_prior import UserPrior
from workers.protocol import Params

from . import _curve_gp as gp
from ._curves import TrialCurves, progress

Array = NDArray[np.float64]
HEAVY = 2.0  # scaled losses above this are compressed by a logarithm
INFEASIBLE = 1.5  # a curve that violates a constraint is at least this much above the median
MAX_POINTS: Final = 260
MAX_FITTED: Final = 130
NUM_LEADERS: Final = 20
LEADER_POINTS: Final = 6
MAX_WEIGHED: Final = 300  # curves of which slices are weighed, the best so far
NUM_NEW: Final = 150
NUM_FACES: Final = 30  # candidates with parameters at an end of their range
REFIT: Final = 1.2  # fit again if the number of reports has grown by this factor
NUM_VECTORS: Final = 3  # of hyperparameters, fitted to different points; each decision draws one
FAILED: Final = 3.0  # the target of a failed configuration
UPTO: Final = (1.0, 0.33, 0.1)  # horizons of a new trial, as shares of the longest


@dataclass(frozen=True)
class Curve:
    """A trial whose learning curve is predicted.

    Args:
        trial: as it is now.
        reported: its losses at each report.
        excess: violation of the constraints, 0 if they hold.
        rate: seconds per unit of progress.
    """

    trial: Trial
    reported: TrialCurves
    excess: float
    rate: float

    @property
    def has_begun(self) -> bool:
        """Whether there is a report with progress and a value of every goal."""
        return self.reported.begin < self.reported.count

    @property
    def at(self) -> float:
        """Its progress; 0 before it has begun."""
        return self.reported.at(self.reported.count - 1) if self.has_begun else 0.0


class Curves:
    """The curves of a sweep."""

    def __init__(self, goals: Sequence[Goal], constraints: Sequence[Constraint]) -> None:
        self.goals = goals
        self.constraints = constraints
        self.all: dict[int, Curve] = {}
        self.num_reports = 0
        self.first = 1.0  # progress of the first report of the newest trial
        self.warmup_end = 0.0  # earlier reports are ignored
        self.complete = 0.0  # the largest progress of a completed trial

    def observe(self, trial: Trial) -> None:
        """Take in a trial that is new or has changed."""
        reported = TrialCurves(trial, self.goals, self.constraints)
        rate = 1.0
        if trial.reports:
            last = trial.reports[-1]
            rate = max(last.seconds, 1e-9) / max(progress(last, self.goals), 1e-9)
        curve = Curve(trial, reported, violation(trial.metrics, self.constraints), rate)
        before = self.all.get(trial.number)
        if before is not None and before.reported.count > reported.count:
            before = None  # an attempt began again
        self.all[trial.number] = curve
        self.num_reports += reported.count - (before.reported.count if before else 0)
        if curve.has_begun and not (before and before.has_begun):
            self.first = reported.at(reported.begin)
        if trial.state is TrialState.COMPLETED:
            self.complete = max(self.complete, curve.at)

    def started(self) -> list[Curve]:
        """The curves with a value of every goal, by number."""
        return [c for _, c in sorted(self.all.items()) if c.has_begun]

    def known(self) -> list[Curve]:
        """Those of them that are past the warm-up."""
        return [c for c in self.started() if c.at >= self.warmup_end]


@dataclass(frozen=True)
class LossScale:
    """Scales losses to targets of the model: 0 for the best, 1 for the median.

    Heavy tails are compressed by a logarithm. Several goals are joined by the augmented Chebyshev
    function (Knowles, "ParEGO", 2006).
    """

    low: Array
    spread: Array
    weights: Array

    @classmethod
    def fit(cls, last: Array, excess: Array, weights: Array) -> LossScale:
        """Fit to the newest losses of each curve (`n x g`) and their violations (`n`).

        Args:
            weights: of the goals, `g`, for joining them.
        """
        feasible = excess <= 0
        low = last[feasible].min(0) if feasible.any() else last.min(0)
        return cls(low, np.maximum(np.median(last, 0) - low, 1e-12), weights)

    def targets(self, losses: Array, excess: Array) -> Array:
        """The targets `n` of losses `n x g` and violations `n`."""
        relative = (losses - self.low) / self.spread
        relative = np.where(
            relative > HEAVY, HEAVY + np.log1p(np.maximum(relative - HEAVY, 0.0)), relative
        )
        weighted = relative * self.weights
        joined = (
            weighted.max(1) + 0.05 * weighted.sum(1) if len(self.weights) > 1 else relative[:, 0]
        )
        joined = np.where(excess > 0, np.maximum(joined, 1.0) + INFEASIBLE, joined)
        return np.where(np.isfinite(joined), joined, HEAVY + 2.0)


@dataclass(frozen=True)
class Slice:
    """The next slice of a worker's time.

    Args:
        number: of the trial; None for a new one.
        target: progress at which it ends; of a forecast, at which the gain is expected.
        reason: for the ledger.
        params: of a new trial; None if the suggester proposes them.
        score: log expected improvement minus log cost; gain: the expected improvement.
    """

    number: int | None
    target: float
    reason: str = ""
    params: Params | None = None
    score: float = 0.0
    gain: float = 0.0


class CurveForecast:
    """The model of all curves of a sweep, fitted again as they grow."""

    def __init__(self, context: SearchContext, curves: Curves, seed: int) -> None:
        self.space = context.domain.space
        self.curves = curves
        self.seed = seed
        self.prior = UserPrior(self.space, context.prior)
        self.sampler = CandidateSampler(context.domain, self.prior)
        self.encoder = Encoder(self.space)
        self._hyper: deque[Tensor] = deque(maxlen=NUM_VECTORS)
        self._fitted = 0
        self.order: list[Curve] = []  # from the best on

    def restrict(self, domain: Domain) -> None:
        """Propose only within the domain from now on."""
        self.sampler = CandidateSampler(domain, self.prior)

    def update(self, rng: np.random.Generator, end: float) -> bool:
        """Condition on all reports so far; False if there are too few."""
        known = self.curves.known()
        if len(known) < 3:
            return False
        self._place = {number: row for row, number in enumerate(self.curves.all)}
        self._unit = self.space.encode([self._params(curve) for curve in self.curves.all.values()])
        self._z = self.encoder(self._unit)
        count = len(self.curves.goals)
        weights = rng.dirichlet([1.0] * count) if count > 1 else np.ones(1)
        last = np.array([c.reported.best(c.reported.count - 1) for c in known])
        excess = np.array([c.excess for c in known])
        scale = LossScale.fit(last, excess, weights)
        targets = scale.targets(last, excess)
        self._best = float(targets.min())
        self.order = [known[i] for i in np.argsort(targets, kind="stable").tolist()]
        points, y = self._data(scale, end)
        if not self._hyper or self.curves.num_reports >= self._fitted * REFIT:
            self._fitted = self.curves.num_reports
            order = np.random.default_rng([self.seed, self._fitted]).permutation(len(y))
            rows = torch.from_numpy(np.sort(order[:MAX_FITTED]))
            part = gp.Points(points.z[rows], points.t[rows], points.curve[rows])
            self._hyper.append(gp.fit(part, y[rows], self.encoder.groups))
            self._fit_rates(known)
        running = [c for c in self.curves.all.values() if c.trial.state is TrialState.RUNNING][:50]
        ats = [min(end, max(c.at * 1.35, self._least())) for c in running]
        ahead = self._points([c.trial.number for c in running], ats)  # other slices look elsewhere
        hyper = self._hyper[int(rng.integers(len(self._hyper)))]
        try:
            posterior = gp.Posterior.condition(gp.Kernel(hyper, self.encoder.groups), points, y)
            self._posterior = posterior.fantasize(ahead)
        except RuntimeError:  # numerically not positive definite
            return False
        return True

    def _data(self, scale: LossScale, end: float) -> tuple[gp.Points, Tensor]:
        """Log-spaced points of the leaders, two points of some others, and failed trials."""
        leaders, rest = self.order[:NUM_LEADERS], self.order[NUM_LEADERS:]
        chosen = [(curve, i) for curve in leaders for i in self._spaced(curve, LEADER_POINTS)]
        chosen += [
            (curve, i)
            for curve in self._some(rest, MAX_POINTS - len(chosen))
            for i in self._spaced(curve, 2)
        ]
        losses = np.array([c.reported.best(i) for c, i in chosen])
        excess = np.array([c.excess for c, _ in chosen])
        failed = [c for c in self.curves.all.values() if c.trial.state is TrialState.FAILED][-40:]
        numbers = [c.trial.number for c, _ in chosen] + [c.trial.number for c in failed]
        ats = [c.reported.at(i) for c, i in chosen] + [end] * len(failed)
        y = np.concatenate([scale.targets(losses, excess), np.full(len(failed), FAILED)])
        return self._points(numbers, ats), torch.from_numpy(y)

    def _spaced(self, curve: Curve, most: int) -> list[int]:
        """At most `most` reports past the warm-up, log-spaced in progress, with the last one."""
        reported = curve.reported
        begin = max(reported.begin, reported.first(self.curves.warmup_end))
        logs = np.log(np.maximum(reported.newest()[0][begin - reported.begin :], 1e-9))
        if len(logs) <= most:
            return [begin + i for i in range(len(logs))]
        wanted = np.linspace(logs[0], logs[-1], most)
        near = {int(np.abs(logs - w).argmin()) for w in wanted} | {len(logs) - 1}
        return sorted(begin + i for i in near)

    def _some(self, rest: Sequence[Curve], room: int) -> list[Curve]:
        """As many as `room` allows with two points each: half the longest, half random."""
        most = max(room // 2, 1)
        if len(rest) <= most:
            return list(rest)
        longest = sorted(rest, key=lambda c: -c.at)
        kept, others = longest[: most // 2], longest[most // 2 :]
        order = np.random.default_rng([self.seed, len(others)]).permutation(len(others))
        return kept + [others[i] for i in np.sort(order[: most - len(kept)]).tolist()]

    def _least(self) -> float:
        """The progress of a new trial's first informative report."""
        return max(self.curves.first, self.curves.warmup_end)

    def _points(self, numbers: Sequence[int], ats: Sequence[float]) -> gp.Points:
        return gp.Points(
            self._z[[self._place[n] for n in numbers]],
            torch.tensor([math.log(max(at, 1e-9)) for at in ats], dtype=torch.float64),
            torch.tensor(numbers, dtype=torch.long),
        )

    def _fit_rates(self, known: Sequence[Curve]) -> None:
        """Fit the log of seconds per unit of progress by quadratic ridge regression."""
        z = self._z[[self._place[c.trial.number] for c in known]]
        y = torch.tensor([math.log(c.rate) for c in known], dtype=torch.float64)
        x = _quadratic(z)
        ridge = 0.1 * torch.eye(x.shape[1], dtype=torch.float64)
        ridge[0, 0] = 1e-6
        self._rates = torch.linalg.solve(x.T @ x + ridge, x.T @ y)

    def best_candidate(
        self,
        candidates: Sequence[Curve],
        horizons: Sequence[float],
        end: float,
        cooling: float,
        left: float,
    ) -> Slice | None:
        """The curve with the largest expected improvement per second; None if there is none.

        Args:
            horizons: factors of a curve's progress to consider, beside its end.
            end: progress at which trials end; left: seconds of the budget.
            cooling: exponent of the cost.
        """
        some = [c for c in candidates if c.at < end * (1 - 1e-9)]
        if not some:
            return None
        place = {curve.trial.number: i for i, curve in enumerate(self.order)}
        some = sorted(some, key=lambda c: place.get(c.trial.number, len(place)))[:MAX_WEIGHED]
        at = np.array([c.at for c in some])[:, None]
        rate = np.array([c.rate for c in some])[:, None]
        upto = np.minimum(
            np.maximum(at * np.array([*horizons, math.inf]), self.curves.warmup_end), end
        )
        points = self._points([c.trial.number for c in some], [c.at for c in some])
        mean, variance = self._posterior.predict_grid(points, torch.from_numpy(np.log(upto)))
        gain = _log_improvement(self._best, mean, variance)
        cost = (upto - at) * rate
        late = torch.from_numpy((cost > left) & (upto > 1.5 * at))
        score = (gain - cooling * torch.from_numpy(np.log(cost))).masked_fill(late, -torch.inf)
        i, j = divmod(int(score.argmax()), upto.shape[1])
        if not math.isfinite(float(score[i, j])):
            return None
        value, horizon = math.exp(float(gain[i, j])), float(upto[i, j])
        return Slice(some[i].trial.number, horizon, score=float(score[i, j]), gain=value)

    def best_new(
        self, rng: np.random.Generator, end: float, cooling: float, left: float, *, guided: bool
    ) -> Slice | None:
        """The new configuration with the best value; if not `guided`, the mean over the space."""
        unit = self._candidates(rng, local=guided)
        z = self.encoder(unit)
        ats = torch.tensor([[max(end * part, self._least()) for part in UPTO]], dtype=torch.float64)
        mean, variance = self._posterior.predict_grid(self._new(z, 1.0), ats.log())
        rates = (_quadratic(z) @ self._rates).clamp(-30.0, 30.0).exp()
        gain, cost = _log_improvement(self._best, mean, variance), ats * rates[:, None]
        late = (cost > left) & (ats > ats.min())
        score = (gain - cooling * cost.log()).masked_fill(late, -torch.inf)
        if not guided:
            expected = torch.logsumexp(score, 0) - math.log(len(unit))
            return Slice(None, 0.0, score=float(expected.max()))
        ranked = score + self._log_prior(unit)[:, None]
        i, j = divmod(int(ranked.argmax()), len(UPTO))
        params = self._first_new(unit, torch.argsort(-ranked[:, j]).tolist())
        if params is None:
            return None
        return Slice(None, float(ats[0, j]), params=params, score=float(score[i, j]))

    def promising(self, rng: np.random.Generator) -> Params | None:
        """A new configuration by expected improvement at the third-longest progress so far."""
        ats = sorted((c.at for c in self.order), reverse=True)
        at = ats[min(2, len(ats) - 1)]
        leaders = [c.trial.number for c in self.order[:100]]
        seen = self._posterior.predict(self._points(leaders, [at] * len(leaders)))
        unit = self._candidates(rng, local=True)
        new = self._posterior.predict(self._new(self.encoder(unit), at))
        gain = _log_improvement(float(seen[0].min()), *new)
        return self._first_new(unit, torch.argsort(-gain - self._log_prior(unit)).tolist())

    def _log_prior(self, unit: Array) -> Tensor:
        return prior_term(self.prior, len(self.curves.all))(unit)

    def _new(self, z: Tensor, at: float) -> gp.Points:
        return gp.Points(
            z, torch.full((len(z),), math.log(at), dtype=torch.float64), torch.full((len(z),), -1)
        )

    def _candidates(self, rng: np.random.Generator, *, local: bool) -> Array:
        """Points of the whole domain; if `local`, also near the leaders and at ends of ranges."""
        everywhere = self.sampler.everywhere(rng, NUM_NEW)
        if not local:
            return everywhere
        leaders = self._unit[[self._place[c.trial.number] for c in self.order[:5]]]
        near = self.sampler.near(rng, leaders, NUM_NEW, (0.01, 0.3))
        faces = leaders[rng.integers(len(leaders), size=NUM_FACES)]
        faces = np.where(
            rng.random(faces.shape) < 1.0 / faces.shape[1], rng.integers(2, size=faces.shape), faces
        )
        return np.concatenate([everywhere, near, self.sampler.snap(faces.astype(np.float64))])

    def _params(self, curve: Curve) -> Params:
        return self.sampler.domain.fitted(curve.trial.params)

    def _first_new(self, unit: Array, order: Sequence[int]) -> Params | None:
        taken = {self.space.key(self._params(curve)) for curve in self.curves.all.values()}
        found = self.sampler.domain.first_new(self.space.decode(unit[order[:50]]), taken)
        return next(iter(found), None)


def _log_improvement(best: float, mean: Tensor, variance: Tensor) -> Tensor:
    deviation = variance.sqrt()
    return torch.add(deviation.log(), _log_ei_helper((best - mean) / deviation))


def _quadratic(z: Tensor) -> Tensor:
    return torch.cat([torch.ones((len(z), 1), dtype=torch.float64), z, z * z], 1)
