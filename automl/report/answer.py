"""The answer of a sweep: one, the same in the terminal, the report, the studio and Python.

It holds the recommendation, a row for each of its parameters, what going on promises, what to try
next, and the failures. The **plateau** of a parameter is how far one may move it, with all others
as recommended, before the expected loss grows by more than the noise of one run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from automl.core import Snapshot, Trial, TrialState, ranking, text
from automl.core.arguments import duration, json_data
from automl.core.ranking import deterministic
from automl.core.text import number, shell_line
from automl.suggesters.base import Array
from search_spaces import Choice, Float, Int, Parameter, Space
from workers.protocol import Params

from .failures import FailureGroup, failure_groups
from .recommendation import Recommendation, believed, interval, judged, share, spread
from .record import Record

if TYPE_CHECKING:
    from automl.suggesters.belief import Belief

GRID: Final = 181  # values of a number, over its range
MAX_DOTS: Final = 200  # of trials, in a row
POOL: Final = 160  # untried configurations everywhere, and as many near the recommended one
MORE: Final = (10, 20, 50)  # trials
MIN_SUCCESS: Final = 0.5
SAFE: Final = 0.8  # of the recommended one's chance to succeed, for a value that is as good
EDGE: Final = 0.02  # of a range, where a caveat begins
MIN_EQUAL: Final = 5  # trials of one value, for a caveat


@dataclass(frozen=True)
class AnswerRow:
    """One parameter of the recommended configuration; places are from 0 to 1 of its range.

    Args:
        name: of it; value: that is recommended; default: of it, None if it has none.
        ends: of its range, or its choices; at, default_at: places of both values.
        band: places between which it is as good; None if that is not known.
        good: the same in words: "0.001 to 0.008", or other choices; "" if that is not known.
        cost: by which the goal gets worse at the default, infinite if it is likely to fail or to
            break a constraint; None if that is not known.
        dots: place, rank (0 is the worst value, 1 the best) and number of each trial.
    """

    name: str
    value: Any
    default: Any
    ends: tuple[Any, ...]
    at: float
    default_at: float | None
    band: tuple[float, float] | None
    good: str
    cost: float | None
    dots: tuple[tuple[float, float, int], ...]
    is_choice: bool

    @property
    def words(self) -> str:
        """`0.0031 (0.001 to 0.008 is as good)`."""
        return f"{number(self.value)} ({self.good})" if self.good else number(self.value)

    @property
    def back(self) -> str:
        """What it costs to go back to the default, in words."""
        if self.default is None:
            return "no default"
        if self.at == self.default_at:
            return "is the default"
        words = f"default {number(self.default)}"
        if self.cost == math.inf:
            return f"{words}: likely fails or is infeasible"
        return words if self.cost is None else f"{words}: costs {self.cost:.2g}"


@dataclass(frozen=True)
class Outlook:
    """What going on promises.

    Args:
        gains: expected improvement of the goal by some more trials, by their number.
        seconds: that one more trial takes, at the pace so far.
        noise: standard deviation between runs of the recommended configuration.
    """

    gains: Mapping[int, float]
    seconds: float
    noise: float

    def __str__(self) -> str:
        parts = [
            f"{n} more trials {g:.2g} ({duration(n * self.seconds)})" for n, g in self.gains.items()
        ]
        worth = max(self.gains.values()) > self.noise
        advice = "worth going on" if worth else "you may stop"
        return (
            f"Expected gain, at most: {', '.join(parts)}; noise of a run {self.noise:.2g}: {advice}"
        )


@dataclass(frozen=True)
class Candidate:
    """A configuration to try next, its odds in words, and the line that enqueues it."""

    title: str
    params: Params
    odds: str
    line: str

    def __str__(self) -> str:
        return f"{self.title}: {self.odds}: {self.line}"


@dataclass(frozen=True)
class Answer:
    """Everything that a person asks of a sweep."""

    recommendation: Recommendation | None
    lines: Sequence[str]
    luck: str
    rows: Sequence[AnswerRow]
    outlook: Outlook | None
    unknown: str
    next: Sequence[Candidate]
    failures: Sequence[FailureGroup]
    trials: int
    caveats: Sequence[str] = ()
    confirmation: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON data for the page."""
        advice = self.recommendation
        return {
            "params": json_data(dict(advice.params)) if advice else None,
            "numbers": advice.trials if advice else (),
            "lines": self.lines,
            "luck": self.luck,
            "rows": [
                {
                    **{k: json_data(v) for k, v in vars(row).items()},
                    "words": row.words,
                    "back": row.back,
                    "ends": [number(one) for one in row.ends],
                }
                for row in self.rows
            ],
            "outlook": str(self.outlook) if self.outlook else "",
            "gains": dict(self.outlook.gains) if self.outlook else {},
            "noise": self.outlook.noise if self.outlook else None,
            "unknown": self.unknown,
            "next": [{**vars(one), "params": json_data(dict(one.params))} for one in self.next],
            "failures": [one.to_dict() for one in self.failures],
            "trials": self.trials,
            "caveats": self.caveats,
            "confirmation": self.confirmation,
        }


def answer(record: Record, *, modelled: bool = True) -> Answer:
    """The answer of a sweep.

    Args:
        modelled: whether to fit a model, which takes seconds.
    """
    belief = believed(record) if modelled else None
    advice = judged(record, belief)
    failures = failure_groups(record.snapshot)
    ended = sum(trial.state.finished for trial in record.trials)
    if advice is None:
        words = text.why_no_best(record.snapshot).split("\n")
        return Answer(None, words, "", (), None, "", (), failures, ended)
    lines, luck = advice.lines(record.snapshot), advice.luck(record.snapshot)
    usable = belief if record.space.legal(advice.params) else None
    rows = _rows(record, advice.params, usable)
    outlook, found = _ahead(record, advice.params, usable) if usable else (None, ())
    unknown = "" if usable else _unknown(record, sure=advice.interval is not None)
    if usable and advice.interval is None and not advice.confirmed:
        which = f"trial {advice.trials[0]} did not run to its end"
        unknown = f"Not known: how sure this is, since {which}, and the model knows whole trials."
    doubts, again = list(caveats(record.snapshot, record.space)), str(record.confirmation or "")
    return Answer(
        advice, lines, luck, rows, outlook, unknown, found, failures, ended, doubts, again
    )


def _unknown(record: Record, *, sure: bool) -> str:
    """What is not known without a model, and when it usually is.

    Args:
        sure: whether new runs say how good the recommended configuration is.
    """
    what = "which parameters matter" if sure else "how sure this is and which parameters matter"
    whole = len(record.snapshot.in_state(TrialState.COMPLETED))
    tuned = sum(parameter.size != 1 for parameter in record.space.parameters.values())
    wanted = max(8, 4 * tuned)
    if whole < wanted:
        after = f"usually after about {wanted} whole trials, {whole} so far"
        return f"Not known yet: {what} ({after})."
    return f"Not known: {what}, since a model of the trials does not predict those it has not seen."


def _rows(record: Record, params: Params, belief: Belief | None) -> list[AnswerRow]:
    """A row for each parameter that is active and tuned, the costliest to put back first."""
    ranks = {trial.number: i for i, (trial, _) in enumerate(record.scored()[::-1])}
    rows = [
        _row(record, parameter, params, belief, ranks)
        for name, parameter in record.space.parameters.items()
        if name in params and parameter.size != 1 and parameter.legal(params[name])
    ]
    return sorted(rows, key=lambda row: -(row.cost or 0.0))


def _row(
    record: Record,
    parameter: Parameter,
    params: Params,
    belief: Belief | None,
    ranks: Mapping[int, int],
) -> AnswerRow:
    name, value = parameter.name, params[parameter.name]
    default = parameter.default if parameter.has_default else None
    is_choice = isinstance(parameter, Choice)
    known = [
        (
            place(parameter, trial.params[name]),
            ranks[trial.number] / max(len(ranks) - 1, 1),
            trial.number,
        )
        for trial in record.trials
        if trial.number in ranks and name in trial.params and parameter.legal(trial.params[name])
    ]
    step = max(1, -(-len(known) // MAX_DOTS))
    at = place(parameter, value)
    band, good, cost = None, "", None
    if belief is not None:
        grid = _grid(parameter, value, default)
        losses, chances = _expected(record, belief, params, name, [value, *grid])
        close = losses[1:] - losses[0] <= belief.noise(params)
        near = list(close & (chances[1:] >= SAFE * chances[0]))
        same = [one for one, ok in zip(grid, near, strict=True) if ok and one != value]
        if is_choice:
            good = f"{', '.join(map(number, same))} as good" if same else ""
        else:
            low, high = _around(grid, near, grid.index(value))
            band = place(parameter, low), place(parameter, high)
            good = f"{number(low)} to {number(high)} is as good" if low != high else ""
        if default is not None and default != value:
            index = 1 + grid.index(default)
            fails = chances[index] < min(MIN_SUCCESS, chances[0])
            cost = math.inf if fails else max(float(losses[index] - losses[0]), 0.0)
    ends: tuple[Any, ...] = tuple(parameter.choices) if isinstance(parameter, Choice) else ()
    if isinstance(parameter, Float | Int):
        ends = parameter.low, parameter.high
    default_at = None if default is None else place(parameter, default)
    dots = tuple(known[::step])
    return AnswerRow(name, value, default, ends, at, default_at, band, good, cost, dots, is_choice)


def place(parameter: Parameter, value: Any) -> float:
    """Where a value is on the range of its parameter, from 0 to 1."""
    if isinstance(parameter, Choice):
        return round((parameter.index(value) + 0.5) / len(parameter.choices), 4)
    assert isinstance(parameter, Float | Int), "there are three kinds of parameters"
    return round(min(max(float(parameter.to_unit(value)), 0.0), 1.0), 4)


def _grid(parameter: Parameter, value: Any, default: Any) -> list[Any]:
    """Values over the range, in order, the given ones among them."""
    if isinstance(parameter, Choice):
        return list(parameter.choices)
    assert isinstance(parameter, Float | Int), "there are three kinds of parameters"
    spread = [parameter.from_unit(float(unit)) for unit in np.linspace(0.0, 1.0, GRID)]
    return sorted({*spread, value, *([] if default is None else [default])})


def _expected(
    record: Record, belief: Belief, params: Params, name: str, values: Sequence[Any]
) -> tuple[Array, Array]:
    """Loss and chance to succeed with a parameter at each value; infinite and 0 if not legal."""
    space = record.space
    rows = [space.complete({**params, name: value}) for value in values]
    legal = [space.legal(row) for row in rows]
    losses, chances = np.full(len(rows), np.inf), np.zeros(len(rows))
    tried = [row for row, ok in zip(rows, legal, strict=True) if ok]
    expected = belief.expected(tried)
    losses[legal] = -expected if record.goal.maximize else expected
    chances[legal] = belief.success(tried)
    return losses, chances


def _around(grid: Sequence[Any], near: Sequence[bool], index: int) -> tuple[Any, Any]:
    """The ends of the connected part of the grid around an index."""
    low = high = index
    while low > 0 and near[low - 1]:
        low -= 1
    while high + 1 < len(grid) and near[high + 1]:
        high += 1
    return grid[low], grid[high]


def _ahead(
    record: Record, params: Params, belief: Belief
) -> tuple[Outlook | None, Sequence[Candidate]]:
    """What going on promises, and what to try next, from draws over untried configurations."""
    space, spec = record.space, record.spec
    rng = np.random.default_rng(spec.seed)
    tried = {space.key(trial.params) for trial in record.trials if space.legal(trial.params)}
    pool = [*space.sample(rng, POOL), *space.neighbours(params, rng, POOL)]
    fresh = {space.key(one): one for one in pool if space.legal(one)}
    new = [one for key, one in fresh.items() if key not in tried]
    if len(new) < 3:
        return None, ()
    values = spread(record, belief.draws([params, *new]))
    losses = -values if record.goal.maximize else values
    success = belief.success(new)
    # A configuration that would probably fail brings nothing.
    gains = np.maximum(losses[:, :1] - losses[:, 1:], 0.0) * success
    ended = sum(trial.state.finished for trial in record.trials)
    pace = record.snapshot.seconds / max(ended, 1)
    outlook = Outlook(_expected_gains(gains, MORE), pace, belief.noise(params))
    return outlook, _candidates(record, values[:, 1:], losses, new, success)


def _expected_gains(gains: Array, counts: Sequence[int]) -> dict[int, float]:
    """The expected gain of the best of some configurations, each added where it brings most.

    Adding greedily reaches at least 63% of the best set's gain, since the gain is submodular
    (Nemhauser, Wolsey and Fisher, 1978).
    """
    best, left, found = np.zeros(len(gains)), set(range(gains.shape[1])), {}
    for n in range(1, max(counts) + 1):
        if left:
            columns = sorted(left)
            sums = np.maximum(best[:, None], gains[:, columns]).sum(0)
            chosen = columns[int(sums.argmax())]
            best = np.maximum(best, gains[:, chosen])
            left.discard(chosen)
        if n in counts:
            found[n] = float(best.mean())
    return found


def _candidates(
    record: Record, values: Array, losses: Array, new: Sequence[Params], success: Array
) -> list[Candidate]:
    """The safest, the likely best and the most to learn, different ones."""
    own = losses[:, 1:]
    likely = own.mean(0)
    worst = np.quantile(own, 0.9, axis=0)
    improvement = np.maximum(losses[:, :1] - own, 0.0).mean(0) * success
    risky = np.where(success < MIN_SUCCESS, np.inf, 0.0)
    scores = {
        "Safest": worst + risky,
        "Likely best": likely + risky,
        "Most to learn": -improvement,
    }
    found: dict[int, Candidate] = {}
    for title, score in scores.items():
        index = next(i for i in np.argsort(score).tolist() if i not in found)
        params = new[index]
        low, high = map(number, interval(values[:, index]))
        odds = f"{number(float(np.median(values[:, index])))} ({low} to {high}), "
        odds += f"{share(float((own[:, index] < losses[:, 0]).mean()))} that it is better"
        if success[index] < 0.95:
            odds += f", {share(float(success[index]))} that it succeeds"
        words = [f"{name}={_typed(value)}" for name, value in params.items()]
        line = shell_line(["automl", "enqueue", record.snapshot.sweep, *words])
        found[index] = Candidate(title, params, odds, line)
    return list(found.values())


def _typed(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "null" if value is None else str(value)


def knee(snapshot: Snapshot, front: Sequence[Trial]) -> int | None:
    """The trial of the front that is nearest to the best of every goal; None if it has no middle.

    Each goal is scaled to the front (Branke et al., "Finding knees in multi-objective
    optimization", 2004, discuss such measures).
    """
    goals = snapshot.goals
    if len(front) < 3:
        return None
    rows = [[g.loss(snapshot.value(t, i) or 0.0) for i, g in enumerate(goals)] for t in front]
    losses = np.array(rows)
    low, high = losses.min(0), losses.max(0)
    unit = (losses - low) / np.where(high > low, high - low, 1.0)
    return front[int(unit.sum(1).argmin())].number


# reasons to doubt


def caveats(snapshot: Snapshot, space: Space) -> Iterator[str]:
    """Reasons to doubt the result, from the trials alone; none if no trial has succeeded."""
    best = snapshot.best
    if best is None:
        return
    yield from _directions(snapshot)
    yield from _at_bounds(best, space)
    yield from _deterministic(snapshot)
    yield from _equal(snapshot)


def _directions(snapshot: Snapshot) -> Iterator[str]:
    """Goals in the opposite direction of the declaration."""
    for goal in snapshot.goals:
        usual = goal.declared.direction if goal.declared else None
        if usual is not None and goal.maximize != (usual == "maximize"):
            better = "higher" if usual == "maximize" else "lower"
            yield f"the goal is '{goal}', but {goal.metric} is declared: {better} is better"


def _at_bounds(best: Trial, space: Space) -> Iterator[str]:
    """Parameters with the best value at the edge of their range."""
    for name, value in best.params.items():
        parameter = space.parameters.get(name)
        if isinstance(parameter, Float | Int) and parameter.size != 1:
            unit = parameter.to_unit(value)
            if unit <= EDGE or unit >= 1 - EDGE:
                bound = text.number(parameter.low if unit < 0.5 else parameter.high)
                shown = f"{name}={text.number(value)}"
                yield f"{shown} is at the edge of its range ({bound}): widen it?"


def _deterministic(snapshot: Snapshot) -> Iterator[str]:
    """Two runs with other seeds that have the same value."""
    if pair := deterministic(snapshot.trials, snapshot.goals[0]):
        first, again = pair
        yield (
            f"trials {first} and {again} have the same {snapshot.goals[0].metric} with different "
            "seeds: it does not depend on the seed, or the seed is ignored, so nothing is repeated"
        )


def _equal(snapshot: Snapshot) -> Iterator[str]:
    """One value of all trials."""
    for goal in snapshot.goals:
        values = [value for t in snapshot.trials if (value := ranking.value(t, goal)) is not None]
        if len(values) >= MIN_EQUAL and len(set(values)) == 1:
            yield (
                f"all {len(values)} trials have the same {goal.metric}, {text.number(values[0])}: "
                "does it depend on the parameters?"
            )
