"""Freeze-thaw by a model of learning curves.

It chooses the next slice of training by expected improvement per second, or by a step of ASHA.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np

from automl.core import Trial, TrialState
from automl.suggesters.base import SearchContext
from automl.suggesters.domain import Domain
from workers.protocol import Params

from ._forecast import Curve, CurveForecast, Curves, Slice
from .asha import AshaStopper
from .base import CONTINUE, Decision, Stopper

NUM_RANDOM: Final = 16  # trials before the model is used
NUM_KNOWN: Final = 8  # of them that are past the warm-up
RANDOM_SHARE: Final = 1 / 8  # of the budget, after which the model is used in any case
HALVING_SHARE: Final = 0.25  # of the decisions
SLICE: Final = 0.5  # a slice ends this far on the way to its horizon, in logarithms
MIN_GROWTH: Final = 1.35  # least factor of a trial's progress in one slice
HORIZONS: Final = (1.5, 2.5, 5.0)  # factors of a trial's progress
MIN_GAIN: Final = 0.01  # of best to median; at the end nothing is resumed for less


class CurveStopper(Stopper):
    """Freeze-thaw: each slice of a worker's time goes to a running, a paused or a new trial.

    A Gaussian process over configurations and progress (`gp`) predicts each curve. Most slices go
    to the largest expected improvement per second. A part of them are steps of ASHA, because
    expected improvement alone keeps training the leader. If trials cannot pause, ASHA stops them.
    If `guided`, the model also chooses new configurations; if not, the suggester does, and a new
    trial counts as a random one.

    The weight of the cost falls as the budget is spent (Lee et al., "Cost-aware Bayesian
    optimization", 2020). Horizons that do not fit into the time left are ignored.
    """

    name = "curve"
    proposes: ClassVar[bool] = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        assert self.space is not None, "the model is of configurations"
        self.curves = Curves(self.goals, self.constraints)
        context = options.get("context") or SearchContext(Domain(self.space))
        self.forecast = CurveForecast(context, self.curves, self.seed)
        self._asha = AshaStopper(*args, **options)
        within = [goal.within for goal in self.goals if goal.within is not None]
        self._last = max(within) if within else self.max_steps  # progress, if it is known
        self._targets: dict[int, float] = {}
        self._chosen: Slice | None = None
        self._num_choices = 0

    def restrict(self, domain: Domain) -> None:
        self.forecast.restrict(domain)

    def observe(self, trial: Trial) -> None:
        self.curves.observe(trial)
        self._asha.observe(trial)
        self.curves.warmup_end = self._asha.warmup.end

    def decide(self, trial: Trial, trials: Sequence[Trial]) -> Decision:
        """Go on to the end of the slice; then pause, unless the trial gets the next slice too."""
        curve = self.curves.all[trial.number]
        if (
            not curve.has_begun
            or curve.at < self.curves.warmup_end
            or self._is_complete(curve)
            or 0.0 < self.curves.complete <= curve.at * (1 + 1e-9)  # a stop would save nothing
        ):
            return CONTINUE
        if not self.can_pause:
            return self._asha.decide(trial, trials)
        if curve.at < self._targets.get(trial.number, 0.0) * (1 - 1e-9):
            return CONTINUE
        choice = self._choose(curve)
        number = choice.number if choice is not None else None
        if choice is not None and number == trial.number:
            self._targets[trial.number] = choice.target
            return CONTINUE
        self._chosen = choice
        other = "a new trial" if number is None else f"trial {number}"
        return Decision("pause", f"curve: at {curve.at:g} {other} has a larger expected gain")

    def resume(self, trials: Sequence[Trial], *, last: bool = False) -> tuple[int, str] | None:
        """The paused trial with the largest value, unless a new one has more."""
        choice, self._chosen = self._chosen, None
        if (
            choice is None
            or (last and choice.number is None)
            or (
                choice.number is not None
                and self.curves.all[choice.number].trial.state is not TrialState.PAUSED
            )
        ):
            choice = self._choose(None, last=last)
        if choice is None or choice.number is None:
            self._chosen = choice
            return None
        self._targets[choice.number] = choice.target
        return choice.number, choice.reason

    def propose(self, trials: Sequence[Trial]) -> Params | None:
        choice, self._chosen = self._chosen, None
        if choice is not None and choice.params is not None:
            self._targets[len(trials)] = choice.target
        return choice.params if choice is not None else None

    def _choose(self, running: Curve | None, *, last: bool = False) -> Slice | None:
        """The next slice; None for a trial from the suggester or, if `last`, for the end."""
        paused = [
            c
            for c in self.curves.started()
            if c.trial.state is TrialState.PAUSED and not self._is_complete(c)
        ]
        candidates = [*paused, running] if running is not None else paused
        if self.spent < RANDOM_SHARE and not last:
            if len(self.curves.all) < NUM_RANDOM:
                return None
            if len(self.curves.known()) < NUM_KNOWN:
                return self._early(paused)
        self._num_choices += 1
        rng = np.random.default_rng([self.seed, self._num_choices])
        halving = rng.random() < HALVING_SHARE
        if not self.forecast.update(rng, self.longest()):
            return self._halve(running, rng, guided=False, last=last)
        if halving and not last:
            return self._halve(running, rng, guided=self.guided, last=last)
        return self._gain(candidates, rng, last)

    def _early(self, paused: Sequence[Curve]) -> Slice | None:
        """A trial that was paused during what turned out to be the warm-up goes on to its end."""
        early = next((c for c in paused if c.at < self.curves.warmup_end), None)
        if early is None or self.curves.warmup_end == math.inf:
            return None
        return Slice(
            early.trial.number, self.curves.warmup_end, "curve: it is still in the warm-up"
        )

    def _halve(
        self, running: Curve | None, rng: np.random.Generator, *, guided: bool, last: bool
    ) -> Slice | None:
        rung = self._asha.waiting_rung(running.trial.number) if running is not None else None
        if rung is not None and running is not None:
            rung.paused.add(running.trial.number)
        found = self._asha.resume([], last=last)
        if rung is not None and running is not None:
            rung.paused.discard(running.trial.number)
        if found is not None:
            number, reason = found
            return Slice(number, self._asha.next_level(number), f"curve: halving, {reason}")
        params = self.forecast.promising(rng) if guided else None
        return (
            Slice(None, 0.0, "curve: halving, a new trial", params) if params is not None else None
        )

    def _gain(
        self, candidates: Sequence[Curve], rng: np.random.Generator, last: bool
    ) -> Slice | None:
        """The slice with the largest expected improvement per second."""
        end = self.longest()
        cooling = 1.0 - 0.5 * self.spent
        best = self.forecast.best_candidate(candidates, HORIZONS, end, cooling, self.seconds_left)
        if last:
            if best is None or best.gain < MIN_GAIN:
                return self._finish(candidates, end)
        else:
            new = self.forecast.best_new(rng, end, cooling, self.seconds_left, guided=self.guided)
            if new is not None and (best is None or new.score > best.score):
                return replace(new, target=self._upto(self.curves.first, new.target))
            if best is None:
                return None
        at = next(curve.at for curve in candidates if curve.trial.number == best.number)
        target = max(self._upto(at, best.target), at * MIN_GROWTH)
        expected = f"{best.gain:.2g} of the distance to the median by {best.target:g}"
        return Slice(best.number, target, f"curve: expected to gain {expected}")

    @staticmethod
    def _upto(at: float, horizon: float) -> float:
        return float(at ** (1 - SLICE) * max(horizon, at) ** SLICE)

    def _finish(self, candidates: Sequence[Curve], end: float) -> Slice | None:
        leader = self.forecast.order[0]
        if leader not in candidates:
            return None
        return Slice(leader.trial.number, end, "curve: the best so far is trained to its end")

    def longest(self) -> float:
        """The progress at which trials end: known, or of completed trials, or a guess."""
        if self._last is not None:
            return float(self._last)
        furthest = max((curve.at for curve in self.curves.all.values()), default=1.0)
        return self.curves.complete if self.curves.complete >= furthest else furthest * 3.0

    def _is_complete(self, curve: Curve) -> bool:
        return self._last is not None and curve.at >= self._last * (1 - 1e-9)
