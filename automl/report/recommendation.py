"""What a sweep recommends: the best of `automl confirm`, else what a model expects to be best.

Only the new runs of `automl confirm` were not selected for their values, so they go first.
The best observed value of many noisy trials was selected for its score, in which it had luck; the
posterior mean at the tried configurations weighs all of them (Frazier, "A tutorial on Bayesian
optimization", 2018, section 4.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from automl.core import Snapshot, Trial, TrialState
from automl.core.replicates import original
from automl.core.text import configuration, number
from workers.protocol import Params

from .metric_models import MetricModel, fit_goal
from .record import Record


@dataclass(frozen=True)
class Recommendation:
    """The tried configuration that is expected to be best, and what is known of it.

    If the best configurations were trained again by `automl confirm`, it is the best of those, and
    `mean`, `interval` and `runs` are those of the new runs only.

    Args:
        params: of the configuration.
        mean: the expected value of the first goal, over runs of it.
        interval: low and high end of the values between which `mean` is with 90% probability. None
            if no model of the trials is to be believed: then `mean` is that of its own runs, and
            the configuration is the one with the best value. None, too, if new runs do not differ.
        runs: how many trials had these parameters and a value; they are not all of one seed.
        trials: numbers of the trials of the sweep with these parameters and a value.
        confirmed: whether it comes from the new runs of `automl confirm`.
    """

    params: Params
    mean: float
    interval: tuple[float, float] | None
    runs: int
    trials: tuple[int, ...]
    confirmed: bool = False

    def to_dict(self) -> Mapping[str, Any]:
        """The JSON object of `automl best --json`."""
        return asdict(self)

    def why(self, snapshot: Snapshot) -> str:
        """Why it is not the best single trial, or what that has to do with it."""
        best = snapshot.best
        assert best is not None, "there is a recommendation"
        value = number(snapshot.value(best) or 0.0)
        if best.number in self.trials and self.confirmed:
            return f"its value in the sweep, {value}, does not count: it was selected for it"
        if best.number in self.trials:
            return f"trial {best.number} has the best value of these runs, {value}: it had luck"
        found = f"trial {best.number} has the best value, {value}, but"
        if self.confirmed:
            return f"{found} its new runs are worse"
        own = ", ".join(number(snapshot.value(snapshot.trials[i]) or 0.0) for i in self.trials)
        expects = f"{found} a model of all whole trials expects less of another run of it"
        return f"{expects}; trial {', '.join(map(str, self.trials))} itself reached {own}"

    def comes_first(self, snapshot: Snapshot) -> bool:
        """Whether it says something else than the best single trial, since runs differ."""
        best = snapshot.best
        several = self.confirmed or self.runs > 1
        return best is not None and (several or best.number not in self.trials)

    def lines(self, snapshot: Snapshot) -> list[str]:
        """What people are shown first: the recommendation, and why; none if it adds nothing."""
        if not self.comes_first(snapshot):
            return []
        best = snapshot.best
        shown = best is not None and best.number in self.trials
        which = [] if shown else [f"  {configuration(self.params)}"]
        return [f"Recommended: {self}", *which, f"  {self.why(snapshot)}"]

    def __str__(self) -> str:
        trials = ", ".join(map(str, self.trials))
        named = f"trial {trials}" if len(self.trials) == 1 else f"trials {trials}"
        new = f"{self.runs} new run{'s' if self.runs > 1 else ''} of `automl confirm`"
        source = f" by {new}" if self.confirmed else ""
        if self.interval is None:
            return f"{named}: {number(self.mean)}{source}"
        low, high = map(number, self.interval)
        found = f"{named}: {number(self.mean)} expected{source}"
        return f"{found}, with 90% probability {low} to {high}"


def believed(record: Record) -> MetricModel | None:
    """The model of the first goal if it predicts trials that it has not seen; else None."""
    model = fit_goal(record)
    if model is None:
        return None
    from .calibration import calibrate

    return model if calibrate(model.metric, model.ensemble).believable else None


def recommended(
    record: Record, modelled: Callable[[Record], MetricModel | None] = believed
) -> Recommendation | None:
    """What the sweep recommends by its first goal; None if no trial has succeeded.

    Args:
        modelled: gives the model of the first goal; None if none is to be believed.
    """
    best, again = record.snapshot.best, record.confirmation
    completed = record.spec.completed
    if best is None:
        return None
    if again is not None and again.leader.values:
        leader = again.leader
        trial, mean, interval = record.trials[leader.trial], leader.mean, again.interval(leader)
        trials = tuple(sorted(_same(record, trial)))
        params, count = completed(trial.params), len(leader.values)
        return Recommendation(params, mean, interval, count, trials, confirmed=True)
    # The model knows nothing of a trial that was stopped early.
    model = modelled(record) if best.state is TrialState.COMPLETED else None
    trial = best if model is None else expected_best(record, model)
    same = _same(record, trial)
    if model is None:
        mean, interval = float(np.mean(list(same.values()))), None
    else:
        unit = record.space.encode([trial.params])
        mean, interval = model.expected(unit), model.interval(unit, trial.params)
    return Recommendation(completed(trial.params), mean, interval, len(same), tuple(sorted(same)))


def best_run(record: Record, advice: Recommendation) -> Trial:
    """The trial of the sweep with the best value of those with the recommended parameters."""
    return next(trial for trial, _ in record.scored() if trial.number in advice.trials)


def _same(record: Record, trial: Trial) -> dict[int, float]:
    """The values of the trials with the parameters of this one, by number."""
    return {t.number: value for t, value in record.scored() if t.params == trial.params}


def expected_best(record: Record, model: MetricModel) -> Trial:
    """The trial whose expected result in another run is the best.

    It is the best single run, too, if the two differ less than people are shown.
    """
    best = record.snapshot.best
    assert best is not None, "a model needs successful trials"
    found = next(iter(shortlist(record, model)), best)
    unit = record.space.encode([best.params, found.params])
    both = {number(model.expected(unit[i : i + 1])) for i in range(2)}
    return found if len(both) > 1 else best


def shortlist(record: Record, model: MetricModel | None) -> list[Trial]:
    """The first trial of each configuration with a value, the most promising first.

    Args:
        model: of the first goal; None to rank by the best value of each configuration.
    """
    if model is None:
        best: dict[int, Trial] = {}
        for trial, _ in record.scored():
            best.setdefault(original(trial), trial)
        return list(best.values())
    scored = {original(trial) for trial, _ in record.scored()}
    means = model.ensemble.mean(model.ensemble.X).tolist()
    ranked = sorted(zip(means, model.trials, strict=True), key=lambda one: (one[0], one[1].number))
    return [trial for _, trial in ranked if original(trial) in scored]
