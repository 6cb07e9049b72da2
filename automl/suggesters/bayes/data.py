"""The history of trials as arrays."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from automl.core import Constraint, Goal, Trial, TrialState
from automl.core.ranking import observed
from automl.core.trial import WIDTH, CurvePoint
from search_spaces import Space

Array = NDArray[np.float64]
NUM_BEST = 10


@dataclass(frozen=True)
class TrialData:
    """The trials with a result, as arrays; several runs of a configuration are several rows.

    Args:
        unit: `n x d` configurations in the unit cube, NaN if inactive.
        losses: `n x g`, goals as losses (smaller is better), NaN if a trial has no value.
        others: `n x c`, further metrics, NaN likewise.
        failed: `n`, whether the configuration made the trial fail.
        kinds: `n`, the kind of failure, or "".
        memory: `n`, peak bytes; estimated for a trial that ran out of memory, NaN if unknown.
        curves: for each trial `k x 3`, steps, seconds and the first goal's smallest loss so far
            (the newest loss of a goal at the end).
        trials: the trial of each row.
    """

    unit: Array
    losses: Array
    others: Array
    failed: NDArray[np.bool_]
    kinds: NDArray[np.str_]
    memory: Array
    curves: Sequence[Array]
    trials: Sequence[Trial]


# Of one trial: losses, further metrics, measured and estimated peak bytes (NaN if unknown); the
# kind of failure, the curve.
TrialRow = tuple[list[float], str, Array]


class TrialReader:
    """Reads trials into arrays. Each trial is read once, although histories come again and again.

    Failures that no configuration causes are left out. A trial that was stopped, paused or
    interrupted counts with its reports.

    Args:
        space: of the configurations.
        goals: whose metrics are read as losses.
        others: names of further metrics, read as they are.
    """

    def __init__(self, space: Space, goals: Sequence[Goal], others: Sequence[str]) -> None:
        self.space = space
        self.goals = goals
        self.others = others
        self._known: dict[int, tuple[Trial, TrialRow | None]] = {}  # by trial number

    def __call__(self, history: Sequence[Trial]) -> TrialData:
        """The trials that are not pending."""
        rows = [(trial, self._row(trial)) for trial in history]
        known = [(trial, *row) for trial, row in rows if row is not None]
        trials = [trial for trial, *_ in known]
        g, c = len(self.goals), len(self.others)
        values = np.array([numbers for _, numbers, *_ in known]).reshape(-1, g + c + 2)
        kinds = np.array([kind for _, _, kind, *_ in known], dtype=np.str_)
        return TrialData(
            unit=self.space.encode([trial.params for trial in trials]),
            losses=values[:, :g],
            others=values[:, g:-2],
            failed=kinds != "",
            kinds=kinds,
            memory=_completed(values[:, -2], values[:, -1]),
            curves=[curve for *_, curve in known],
            trials=trials,
        )

    def _row(self, trial: Trial) -> TrialRow | None:
        known, row = self._known.get(trial.number, (None, None))
        if known is not trial:
            row = self._read(trial)
            self._known[trial.number] = trial, row
        return row

    def _read(self, trial: Trial) -> TrialRow | None:
        kind = trial.failure or ""
        pending = trial.state in (TrialState.WAITING, TrialState.RUNNING)
        if pending or kind == "preempted":  # which no configuration causes
            return None
        losses = [loss_of(trial, goal) for goal in self.goals]
        failed = trial.state is TrialState.FAILED
        if not failed and not any(map(math.isfinite, losses)):
            if trial.state is TrialState.COMPLETED:
                failed, kind = True, "missing_metric"
            elif not trial.reports:
                return None
        others = [trial.metrics.get(name, math.nan) for name in self.others]
        values = losses + [x if math.isfinite(x) else math.nan for x in others]
        peak = trial.metrics.get("peak_memory_bytes", trial.peak_memory_bytes)
        estimate = trial.metrics.get("estimated_memory_bytes", trial.estimated_memory_bytes)
        peaks = [math.nan if kind == "out_of_memory" else _positive(peak), _positive(estimate)]
        values = [math.nan if failed else value for value in values]
        kind = (kind or "crashed") if failed else ""
        return values + peaks, kind, curve_of(trial, self.goals[0])


def _completed(measured: Array, estimates: Array) -> Array:
    """Measured peaks, else estimates, scaled by the ratio of both in other trials."""
    ratios = (measured / estimates)[np.isfinite(measured / estimates)]
    ratio = float(np.median(ratios)) if len(ratios) else math.nan
    return np.where(np.isfinite(measured), measured, ratio * estimates)


def _positive(number: object) -> float:
    return float(number) if isinstance(number, int | float) and 0 < number < math.inf else math.nan


def curve_of(trial: Trial, goal: Goal) -> Array:
    """Steps, seconds and smallest loss so far at each report of the goal's metric, `k x 3`.

    Of a goal at the end, it is the newest loss. If no report has the metric, it is one row with the
    last report's steps and seconds.
    """
    table: Array = np.array(trial.reports.curve(goal).table(len(trial.reports))).reshape(-1, WIDTH)
    points = CurvePoint(*table[(table[:, 0] > 0) & (table[:, 1] > 0)].T)
    rows: Array = np.column_stack([points.step, points.seconds, points.best])
    known = np.isfinite(points.loss)
    return rows[known] if known.any() else rows[-1:]


def loss_of(trial: Trial, goal: Goal) -> float:
    """The goal's loss in a trial, also in one that pruned itself; NaN if it has none."""
    worth = observed(trial, goal)
    return math.nan if worth is None else goal.loss(worth)


def feasible_rows(data: TrialData, constraints: Sequence[Constraint]) -> NDArray[np.bool_]:
    """`n`, which trials have every goal and satisfy every constraint on `TrialData.others`."""
    good = np.isfinite(data.losses).all(1)
    for i, constraint in enumerate(constraints):
        good &= violations(data.others[:, i], constraint) <= 0  # false for NaN
    return np.asarray(good, dtype=bool)


def best_rows(
    data: TrialData, feasible: NDArray[np.bool_], smoothed: Array | None = None
) -> NDArray[np.intp]:
    """The ten best feasible trials, the best first; of several goals part of the front.

    The front begins with another trial each time. If no trial is feasible, all with a value of the
    first goal count.

    Args:
        smoothed: `n`, losses to use instead of the observed ones, which noise can flatter.
    """
    rows = np.flatnonzero(feasible if feasible.any() else np.isfinite(data.losses[:, 0]))
    if data.losses.shape[1] > 1:
        return np.roll(rows[front(data.losses[rows])], -len(data.unit))[: 2 * NUM_BEST]
    losses = data.losses[:, 0] if smoothed is None else smoothed
    return rows[np.argsort(losses[rows], kind="stable")[:NUM_BEST]]


def front(losses: Array) -> NDArray[np.intp]:
    """Rows of `n x g` losses that no other row dominates, the first of equal ones, ascending."""
    import torch
    from botorch.utils.multi_objective.pareto import is_non_dominated

    return np.flatnonzero(is_non_dominated(torch.from_numpy(-losses)).numpy())


def violations(values: Array, constraint: Constraint) -> Array:
    """How far each value exceeds the bound, `n`; NaN for NaN."""
    return np.array([constraint.excess(value) for value in values.tolist()], dtype=np.float64)
