"""Which trial gets the next slice: the one that is expected to gain most for its seconds, or a step of halving."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from automl.core.trial import Trial, TrialState
from automl.stopping.asha import AshaStopper
from automl.stopping.base import CONTINUE, Decision, Stopper
from automl.suggesters.base import SearchContext
from automl.suggesters.domain import Domain
from workers.protocol import Params

from .curves import Curve, Curves
from .forecast import Forecast

NUM_RANDOM: Final = 16  # trials before the model is asked
NUM_KNOWN: Final = 8  # of them so far that their reports say something
RANDOM_SHARE: Final = 1 / 8  # of the budget, after which it is asked in any case
HALVING_SHARE: Final = 0.25  # of the decisions
SLICE: Final = 0.5  # of the way, in logarithms, to the horizon for which a trial was chosen, before it is weighed again
GROWTH: Final = 1.35  # of a trial's progress in one slice, at least
HORIZONS: Final = (1.5, 2.5, 5.0)
LEAST_GAIN: Final = (
    0.01  # of the distance from best to median, below which nothing is resumed at the end
)
HOPELESS: Final = (
    0.02  # probability of becoming the best, below which a trial that cannot pause is stopped
)


@dataclass(frozen=True)
class Choice:
    """What gets a slice: a trial (its number) or a new configuration, up to `target`, and why."""

    number: int | None
    target: float
    reason: str
    params: Params | None = None


class CurveStopper(Stopper):
    """Freeze-thaw: every slice of a worker's time is weighed anew among running, paused and new trials.

    A Gaussian process over configurations and progress (`gp`) predicts where each curve leads. Most slices go to the
    largest expected improvement per second; a part of them are steps of asynchronous successive halving, because
    improvement over the best alone keeps feeding the leader. Under the suggester `bayes` new configurations are chosen
    by the same model; others propose their own, which count as draws from the space.

    Cost is cooled as the budget is spent (Lee et al., "Cost-aware Bayesian optimization", 2020), and nothing is weighed
    for a horizon that does not fit into the time that is left.
    """

    name = "curve"
    one_by_one: ClassVar[bool] = True
    proposes: ClassVar[bool] = True

    def __init__(self, *args: Any, context: SearchContext | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.space is None:
            raise ValueError("the stopper 'curve' needs the space")
        self.curves = Curves(self.goals, self.constraints)
        self.guided = context is not None
        context = context or SearchContext(Domain(self.space))
        self.forecast = Forecast(context, self.curves, self.seed)
        self._asha = AshaStopper(*args, **options)
        self._targets: dict[int, float] = {}
        self._chosen: Choice | None = None
        self._num_choices = 0

    def restrict(self, domain: Domain) -> None:
        """See `Stopper.restrict`."""
        self.forecast.restrict(domain)

    def observe(self, trial: Trial) -> None:
        """Keep the curve."""
        self.curves.observe(trial)
        self._asha.observe(trial)
        self.curves.since = self._asha.informative.since

    def decide(self, trial: Trial, trials: Sequence[Trial]) -> Decision:
        """Go on to the end of the slice; then pause, unless the trial is the best choice for the next one too."""
        curve = self.curves.all[trial.number]
        if not curve.known or curve.at < self.curves.since:
            return CONTINUE  # it says nothing yet
        if self._at_end(curve):
            return CONTINUE
        if not self.can_pause:
            return self._judge(curve)
        if curve.at < self._targets.get(trial.number, 0.0) * (1 - 1e-9):
            return CONTINUE
        choice = self._choose(curve)
        if choice is not None and choice.number == trial.number:
            self._targets[trial.number] = choice.target
            return CONTINUE
        self._chosen = choice
        other = (
            "a new trial" if choice is None or choice.number is None else f"trial {choice.number}"
        )
        return Decision("pause", f"curve: {other} is worth more than to go on from {curve.at:g}")

    def resume(self, trials: Sequence[Trial], *, last: bool = False) -> tuple[int, str] | None:
        """The paused trial that is worth most, unless a new one is worth more."""
        choice, self._chosen = self._chosen, None
        if choice is None or not self._is_possible(choice) or (last and choice.number is None):
            choice = self._choose(None, last=last)
        if choice is None or choice.number is None:
            self._chosen = choice
            return None
        self._targets[choice.number] = choice.target
        return choice.number, choice.reason

    def propose(self, trials: Sequence[Trial]) -> Params | None:
        """The new configuration that was weighed."""
        choice, self._chosen = self._chosen, None
        if choice is not None and choice.params is not None:
            self._targets[len(trials)] = choice.target
        return choice.params if choice is not None else None

    # ------------------------------------------------------------------ the choice

    def _choose(self, running: Curve | None, *, last: bool = False) -> Choice | None:
        """None for a new trial that the suggester proposes, or where nothing is worth a slice at the end."""
        paused = [
            c
            for c in self.curves.begun()
            if c.state is TrialState.PAUSED and not self._is_complete(c)
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

    def _early(self, paused: Sequence[Curve]) -> Choice | None:
        """Those that were paused before anybody knew that reports say nothing there."""
        early = next((c for c in paused if c.at < self.curves.since), None)
        if early is None or self.curves.since == math.inf:
            return None
        return Choice(early.number, self.curves.since, "curve: its reports say nothing yet")

    def _halve(
        self, running: Curve | None, rng: np.random.Generator, *, guided: bool, last: bool
    ) -> Choice | None:
        rung = self._asha.waiting(running.number) if running is not None else None
        found = self._asha.resume([], last=last)
        if rung is not None and running is not None:
            rung.pause(running.number, False)
        if found is not None:
            number, reason = found
            return Choice(number, self._asha.next_level(number), f"curve: halving, {reason}")
        params = self.forecast.promising(rng) if guided else None
        return (
            Choice(None, 0.0, "curve: halving, a new trial", params) if params is not None else None
        )

    def _gain(
        self, candidates: Sequence[Curve], rng: np.random.Generator, last: bool
    ) -> Choice | None:
        """The largest expected improvement per second (to a power that falls as the budget is spent)."""
        end = self.longest()
        cooling = 1.0 - 0.5 * self.spent
        best = self.forecast.best_candidate(candidates, HORIZONS, end, cooling, self.seconds_left)
        if last:
            if best is None or best.gain < LEAST_GAIN:
                return self._finish(candidates, end)
        else:
            new = self.forecast.best_new(rng, end, cooling, self.seconds_left, guided=self.guided)
            if best is None or (new is not None and new.score > best.score):
                return (
                    Choice(None, self._upto(self.curves.first, new.horizon), "", new.params)
                    if new is not None
                    else None
                )
        target = max(self._upto(best.curve.at, best.horizon), best.curve.at * GROWTH)
        expected = f"{best.gain:.2g} of the distance to the median by {best.horizon:g}"
        return Choice(best.curve.number, target, f"curve: expected to gain {expected}")

    @staticmethod
    def _upto(at: float, horizon: float) -> float:
        """A part of the way to where the gain is expected: to look sooner would only make new ones look better."""
        return float(at ** (1 - SLICE) * max(horizon, at) ** SLICE)

    def _finish(self, candidates: Sequence[Curve], end: float) -> Choice | None:
        """At the very end the best trial is trained to its end."""
        leader = self.forecast.leader
        if leader is None or leader not in candidates:
            return None
        return Choice(leader.number, end, "curve: the best so far is trained to its end")

    def _judge(self, curve: Curve) -> Decision:
        """For trials that cannot pause: stop one that will hardly become the best."""
        if len(self.curves.known()) < NUM_RANDOM // 2:
            return CONTINUE
        if curve.at < self._targets.get(curve.number, 0.0):
            return CONTINUE
        self._targets[curve.number] = curve.at * GROWTH
        self._num_choices += 1
        if not self.forecast.update(
            np.random.default_rng([self.seed, self._num_choices]), self.longest()
        ):
            return CONTINUE
        chance = self.forecast.chance(curve, self.longest())
        if chance >= HOPELESS:
            return CONTINUE
        return Decision("stop", f"curve: becomes the best with a probability of {chance:.1%}")

    def longest(self) -> float:
        """How far a trial can go: what is known, or the furthest of those that have ended by themselves, or a guess."""
        last = self._last()
        if last is not None:
            return float(last)
        furthest = max((curve.at for curve in self.curves.all.values()), default=1.0)
        return self.curves.complete if self.curves.complete >= furthest else furthest * 3.0

    def _is_complete(self, curve: Curve) -> bool:
        last = self._last()
        return last is not None and curve.at >= last * (1 - 1e-9)

    def _at_end(self, curve: Curve) -> bool:
        """Whether it is as far as trials are known to go: to end it there saves nothing, and it would not count."""
        return self._is_complete(curve) or 0.0 < self.curves.complete <= curve.at * (1 + 1e-9)

    def _last(self) -> float | None:
        """The progress at which a trial ends, where that is known in advance."""
        within = [goal.within for goal in self.goals if goal.within is not None]
        return max(within) if within else self.max_steps

    def _is_possible(self, choice: Choice) -> bool:
        return choice.number is None or self.curves.all[choice.number].state is TrialState.PAUSED
