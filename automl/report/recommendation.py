"""What a sweep recommends: the best of `automl confirm`, else what a model expects to be best.

`recipe` writes it as a file for `automl sweep`: one trial, nothing left to tune.

Only the new runs of `automl confirm` were not selected for their values, so they go first.
The best observed value of many noisy trials was selected for its score, in which it had luck; the
posterior mean at the tried configurations weighs all of them (Frazier, "A tutorial on Bayesian
optimization", 2018, section 4.1).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from automl.core import Snapshot, SweepSpec, Trial, TrialState, text
from automl.core.arguments import compact_json
from automl.core.ranking import original
from automl.core.text import number, shell_line, trained_words
from automl.suggesters.base import Array
from workers.protocol import Params

from .record import Confirmation, Record

if TYPE_CHECKING:
    from automl.suggesters.belief import Belief

TOPS: Final = {"accuracy": 1.0, "acc": 1.0, "auc": 1.0, "f1": 1.0, "bleu": 100.0, "chrf": 100.0}
MAX_RIVALS: Final = 120  # the most promising of what was tried, that the best is compared with


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
        baseline_mean: the expected value of trial 0, likewise; None if it has none.
        baseline_interval: of `baseline_mean`.
        probability_better: that `mean` is better than `baseline_mean`; None if it is not known.
        probability_best: that it is the best of what was tried; None if it is not known.
    """

    params: Params
    mean: float
    interval: tuple[float, float] | None
    runs: int
    trials: tuple[int, ...]
    confirmed: bool = False
    baseline_mean: float | None = None
    baseline_interval: tuple[float, float] | None = None
    probability_better: float | None = None
    probability_best: float | None = None

    def to_dict(self) -> Mapping[str, Any]:
        """The JSON object of `automl best --json`."""
        return asdict(self)

    def lines(self, snapshot: Snapshot) -> list[str]:
        """The answer in sentences, the same wherever people look."""
        goal = snapshot.goals[0]
        default = "the default" if text.has_default(snapshot) else "trial 0"
        trials = f"trial{'s' * (len(self.trials) > 1)} {', '.join(map(str, self.trials))}"
        source = (
            f" by {self.runs} new run{'s' * (self.runs != 1)} of automl confirm"
            if self.confirmed
            else ""
        )
        value = f"{goal.metric} {_value(self.mean, self.interval)}{source}"
        first = " by the first goal" if len(snapshot.goals) > 1 else ""
        found = [f"Recommended{first}: {trials}, {value}"]
        if 0 in self.trials:
            found.append(f"That is {default}: nothing better is known.")
        elif self.baseline_mean is None:
            lacks = "has no value to compare with: it failed or is infeasible."
            found.append(f"{default[0].upper()}{default[1:]} {lacks}")
        else:
            change = text.change(self.mean, self.baseline_mean)
            words = f"; the change is {change}" if change else ""
            against = _value(self.baseline_mean, self.baseline_interval)
            found.append(f"{default[0].upper()}{default[1:]}: {against}{words}.")
        odds = [
            f"{share(chance)} that it {words}"
            for chance, words in (
                (self.probability_better, f"beats {default}"),
                (self.probability_best, "is the best of what was tried"),
            )
            if chance is not None
        ]
        if odds:
            found.append(f"Probability: {', '.join(odds)}.")
        return found

    def luck(self, snapshot: Snapshot) -> str:
        """The best single run, in small type: it was selected for its value."""
        best = snapshot.best
        is_that = self.interval is None and not self.confirmed and self.runs == 1
        if best is None or is_that:
            return ""
        value = number(snapshot.value(best) or 0.0)
        return f"Best single run: trial {best.number}, {value}; it was selected for its luck too."


def share(chance: float) -> str:
    """A probability in words of people: none is 0% or 100%."""
    if chance > 0.99:
        return "over 99%"
    return "under 1%" if chance < 0.01 else f"{chance:.0%}"


def believed(record: Record) -> Belief | None:
    """What the model believes of the first goal, if it predicts trials that it has not seen."""
    spec = record.snapshot.spec
    if spec is None or len(record.snapshot.in_state(TrialState.COMPLETED)) < 3:
        return None
    from automl.suggesters.belief import belief

    ended = [trial for trial in record.trials if trial.state.finished]
    found = belief(record.space, spec.goals, spec.constraints, spec.seed, ended)
    return found if found is not None and found.trustworthy else None


def recommended(record: Record) -> Recommendation | None:
    """What the sweep recommends by its first goal; None if no trial has succeeded."""
    return None if record.snapshot.best is None else judged(record, believed(record))


def judged(record: Record, belief: Belief | None) -> Recommendation | None:
    """The recommendation by what a model believes; None for `belief` if none is to be trusted."""
    best, again = record.snapshot.best, record.confirmation
    if best is None:
        return None
    if best.state is not TrialState.COMPLETED:
        belief = None  # the model knows nothing of a trial that was stopped early
    if again is not None and again.leader.values:
        return _confirmed(record, again)
    ranked = shortlist(record, belief)
    trial, default = _alike(record, belief, ranked[0], best), record.trials[0]
    runs = _same(record, trial)
    found = Recommendation(
        trial.params,
        float(np.mean(list(runs.values()))),
        None,
        len(runs),
        tuple(sorted(runs)),
        baseline_mean=_mean(_same(record, default)),
    )
    if belief is None:
        return found
    rivals = [one for one in ranked if one.params != trial.params][: MAX_RIVALS - 2]
    known = record.space.legal(default.params)
    rows = [trial.params, *([default.params] if known else []), *(one.params for one in rivals)]
    draws = spread(record, belief.draws(rows, trial.params))
    losses = draws if not record.goal.maximize else -draws
    theirs = draws[:, 1] if known and found.baseline_mean is not None else None
    better = 0 not in found.trials and theirs is not None
    return Recommendation(
        found.params,
        float(np.median(draws[:, 0])),
        interval(draws[:, 0]),
        found.runs,
        found.trials,
        False,
        found.baseline_mean if theirs is None else float(np.median(theirs)),
        None if theirs is None else interval(theirs),
        float((losses[:, 0] < losses[:, 1]).mean()) if better else None,
        float((losses[:, 0] <= losses.min(1)).mean()),
    )


def bounds(record: Record) -> tuple[float, float]:
    """What the first goal can be: an accuracy is never above 1, unless one was observed."""
    words = re.split("[^a-z0-9]", record.goal.metric.lower())
    top = next((TOPS[word] for word in words if word in TOPS), np.inf)
    known = all(0 <= value <= top for _, value in record.scored())
    return (0.0, top) if top < np.inf and known else (-np.inf, np.inf)


def spread(record: Record, draws: Array) -> Array:
    """Draws as wide as few trials make them, within what the goal can be.

    Estimates of variances are too small by about `(n - p) / n`, if `n` runs have chosen `p` of the
    model's parameters too: a length for each that is tuned, the signal and the noise (Harville,
    "Maximum likelihood approaches to variance component estimation", 1977).
    """
    runs = len(record.snapshot.in_state(TrialState.COMPLETED))
    fitted = 2 + sum(parameter.size != 1 for parameter in record.space.parameters.values())
    wider = np.sqrt(runs / max(runs - fitted, runs / 2))
    middle = np.median(draws, axis=0)
    low, high = bounds(record)
    low = low if draws.min(initial=0.0) < 0 else 0.0  # what is never negative stays so
    return np.asarray(np.clip(middle + wider * (draws - middle), low, high), dtype=np.float64)


def interval(draws: Array) -> tuple[float, float]:
    """The values between which 90% of the draws are."""
    low, high = np.quantile(draws, [0.05, 0.95])
    return float(low), float(high)


def best_run(record: Record, advice: Recommendation) -> Trial:
    """The trial of the sweep with the best value of those with the recommended parameters."""
    return next(trial for trial, _ in record.scored() if trial.number in advice.trials)


def shortlist(record: Record, belief: Belief | None) -> list[Trial]:
    """The first whole trial of each configuration with a value, the most promising first.

    Args:
        belief: of the first goal; None to rank by the best value of each configuration.
    """
    first: dict[int, Trial] = {}
    for trial, _ in record.scored():
        first.setdefault(original(trial), trial)
    if belief is None:
        return list(first.values())
    legal = record.space.legal
    whole = [t for t in first.values() if t.state is TrialState.COMPLETED and legal(t.params)]
    losses = belief.expected([trial.params for trial in whole]) * (
        -1 if record.goal.maximize else 1
    )
    order = sorted(
        zip(losses.tolist(), whole, strict=True), key=lambda one: (one[0], one[1].number)
    )
    return [record.trials[original(trial)] for _, trial in order]


def _alike(record: Record, belief: Belief | None, trial: Trial, best: Trial) -> Trial:
    """The best single run instead, if people would be shown the same expected value for it."""
    if belief is None or not record.space.legal(best.params):
        return trial
    both = {number(float(value)) for value in belief.expected([trial.params, best.params])}
    return trial if len(both) > 1 else best


def _confirmed(record: Record, again: Confirmation) -> Recommendation:
    leader = again.leader
    trial, default = record.trials[leader.trial], record.trials[0]
    theirs = next((one for one in again.repeats if one.trial == 0 and one.values), None)
    doubt = again.doubts().get(0) if theirs is not None and leader.trial != 0 else None
    return Recommendation(
        trial.params,
        leader.mean,
        again.interval(leader),
        len(leader.values),
        tuple(sorted(_same(record, trial))),
        True,
        theirs.mean if theirs else _mean(_same(record, default)),
        again.interval(theirs) if theirs else None,
        None if doubt is None else 1 - doubt,
        again.probability if len(again.repeats) > 1 and again.degrees else None,
    )


def _same(record: Record, trial: Trial) -> dict[int, float]:
    """The values of the trials with the parameters of this one, by number."""
    return {t.number: value for t, value in record.scored() if t.params == trial.params}


def _mean(values: Mapping[int, float]) -> float | None:
    return float(np.mean(list(values.values()))) if values else None


def _value(mean: float, ends: tuple[float, float] | None) -> str:
    if ends is None:
        return number(mean)
    return f"{number(mean)} expected (90%: {number(ends[0])} to {number(ends[1])})"


def line_of(spec: SweepSpec, file: str | Path) -> str:
    """The line that runs the configuration in a file; a ledger does not know FILE:NAME."""
    words = ["automl", "sweep", str(file), *trained_words(spec)]
    return " ".join(shell_line(words).splitlines())


def learned_space(spec: SweepSpec) -> str:
    """The configuration of a sweep whose objective has declared the space as it ran."""
    head = f"# The space that the objective of the sweep {spec.name} has asked for"
    lines = [head, f"name: {spec.name}", f"goals: [{', '.join(map(str, spec.goals))}]", "space:"]
    for name, parameter in spec.space.parameters.items():
        entry = {k: v for k, v in parameter.to_dict().items() if k not in ("type", "name")}
        if parameter.kind == "choice":  # else numbers would be ordered
            entry.setdefault("ordered", False)
        if parameter.kind == "float":  # else bounds without decimals would be whole numbers
            entry |= {end: float(entry[end]) for end in ("low", "high")}
        lines.append(f"  {compact_json(name)}: {compact_json(entry)}")
    texts = [*spec.constraints, *spec.space.constraints]
    lines.append(f"constraints: [{', '.join(compact_json(str(one)) for one in texts)}]")
    trials = spec.budget.trials or 50
    return "\n".join([*lines, f"budget: {{trials: {trials}}}", f"seed: {spec.seed}", ""])


def recipe(spec: SweepSpec, trial: Trial, file: Path | None = None) -> str:
    """The configuration file of one trial of a sweep; `file` is where it is written, if known."""
    name = f"{spec.name[:58]}-best"
    how = "" if file else f"save as {name}.yaml and "
    run = f"{how}run: {line_of(spec, file or f'{name}.yaml')}"
    lines = [f"# Trial {trial.number} of the sweep {spec.name}; {run}", f"name: {name}"]
    if spec.workload:
        lines.append(f"workload: {spec.workload}")
    sections = {"data": spec.data, "fixed": spec.fixed, "reports": spec.reports}
    for section, values in sections.items():
        items = [f"  {compact_json(key)}: {compact_json(value)}" for key, value in values.items()]
        lines += [f"{section}:", *items] if values else []
    lines.append(f"goals: [{', '.join(map(str, spec.goals))}]")
    if spec.constraints:
        bounds = ", ".join(compact_json(str(one)) for one in spec.constraints)
        lines.append(f"constraints: [{bounds}]")
    lines.append("space:")
    lines += [f"  {name}: [{compact_json(value)}]" for name, value in trial.params.items()]
    lines += ["budget: {trials: 1}", "suggester: sobol"]
    lines.append(f"resources: {{cpus: {spec.resources.cpus}, gpus: {spec.resources.gpus}}}")
    return "\n".join([*lines, f"seed: {spec.seed}", ""])
