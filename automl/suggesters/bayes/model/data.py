"""The history of trials as arrays."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from automl.core import Goal, Trial, TrialState
from automl.core.ranking import observed, original
from automl.core.reports import WIDTH, CurvePoint
from search_spaces import Space

Array = NDArray[np.float64]
PENDING = frozenset({TrialState.WAITING, TrialState.RUNNING})


@dataclass(frozen=True)
class TrialData:
    """The configurations with a result, as arrays.

    Several runs of a configuration are one row with their mean.

    Args:
        unit: `n x d` configurations in the unit cube, NaN if inactive.
        losses: `n x g`, goals as losses (smaller is better), NaN if a trial has no value.
        others: `n x c`, further metrics, NaN likewise.
        failed: `n`, whether the configuration made the trial fail.
        kinds: `n`, the kind of failure, or "".
        memory: `n`, peak bytes; estimated for a trial that ran out of memory, NaN if unknown.
        nodes: `n`, the kind of node that each trial ran on, "" if unknown.
        curves: for each trial `k x 3`, steps, seconds and the first goal's smallest loss so far
            (the newest loss of a goal at the end). Of several runs, that of the first.
        runs: for each row `k x g`, the losses of its runs.
        trials: for each row, its first trial.
    """

    unit: Array
    losses: Array
    others: Array
    failed: NDArray[np.bool_]
    kinds: NDArray[np.str_]
    memory: Array
    nodes: NDArray[np.str_]
    curves: Sequence[Array]
    runs: Sequence[Array]
    trials: Sequence[Trial]

    def __len__(self) -> int:
        return len(self.unit)


@dataclass(frozen=True)
class TrialRow:
    """A row of `TrialData`.

    Args:
        numbers: losses, further metrics, measured and estimated peak bytes; NaN if unknown.
    """

    numbers: list[float]
    kind: str
    node: str
    curve: Array


class TrialReader:
    """Reads trials into arrays. Each trial is read once, although histories come again and again.

    Failures that no configuration causes are left out. A trial that was stopped, paused or
    interrupted counts with its reports.

    Args:
        space: of the configurations. Trials of another space are left out.
        goals: whose metrics are read as losses.
        others: names of further metrics, read as they are.
    """

    def __init__(self, space: Space, goals: Sequence[Goal], others: Sequence[str]) -> None:
        self.space = space
        self.goals = goals
        self.others = others
        self._known: dict[int, tuple[Trial, bool, TrialRow | None]] = {}  # by trial number

    def legal(self, trials: Sequence[Trial]) -> list[Trial]:
        """The trials without those of another space."""
        return [trial for trial in trials if self._lookup(trial)[0]]

    def __call__(self, history: Sequence[Trial]) -> TrialData:
        """The trials of this space that are not pending."""
        known = [(trial, self._lookup(trial)[1]) for trial in history]
        groups = _by_configuration([(trial, row) for trial, row in known if row is not None])
        firsts = [group[0] for group in groups]
        rows = [[row.numbers for _, row in group] for group in groups]
        g, c = len(self.goals), len(self.others)
        means = np.array([np.mean(runs, axis=0) for runs in rows]).reshape(-1, g + c + 2)
        kinds = np.array([row.kind for _, row in firsts], dtype=np.str_)
        return TrialData(
            unit=self.space.encode([trial.params for trial, _ in firsts]),
            losses=means[:, :g],
            others=means[:, g:-2],
            failed=kinds != "",
            kinds=kinds,
            memory=_completed(means[:, -2:]),
            nodes=np.array([row.node for _, row in firsts], dtype=np.str_),
            curves=[row.curve for _, row in firsts],
            runs=[np.array(runs)[:, :g] for runs in rows],
            trials=[trial for trial, _ in firsts],
        )

    def _lookup(self, trial: Trial) -> tuple[bool, TrialRow | None]:
        """Whether the trial is legal in the space, and its row if it has a result."""
        known, legal, row = self._known.get(trial.number, (None, False, None))
        if known is not trial:
            if known is None or known.params is not trial.params:
                legal = self.space.legal(trial.params)
            row = self._read(trial) if legal else None
            self._known[trial.number] = (trial, legal, row)
        return legal, row

    def _read(self, trial: Trial) -> TrialRow | None:
        """The trial as a row; None if it has no result (yet)."""
        kind = trial.failure or ""
        if trial.state in PENDING or kind == "preempted":  # which no configuration causes
            return None
        losses = [loss_of(trial, goal) for goal in self.goals]
        failed = trial.state is TrialState.FAILED
        if not failed and not any(map(math.isfinite, losses)):
            if trial.state is TrialState.COMPLETED:
                failed, kind = True, "missing_metric"
            elif not trial.reports:
                return None
        values = losses + [_finite(trial.metrics.get(name)) for name in self.others]
        return TrialRow(
            [math.nan if failed else value for value in values]
            + [_memory(trial), _estimated(trial)],
            (kind or "crashed") if failed else "",
            trial.node_kind,
            curve_of(trial, self.goals[0]),
        )


def _by_configuration(
    found: Sequence[tuple[Trial, TrialRow]],
) -> list[list[tuple[Trial, TrialRow]]]:
    """The trials by configuration, in the order of its first one; one that failed is alone."""
    groups: dict[int | tuple[int, str], list[tuple[Trial, TrialRow]]] = {}
    for trial, row in found:
        key = (trial.number, row.kind) if row.kind else original(trial)
        groups.setdefault(key, []).append((trial, row))
    return list(groups.values())


def _completed(peaks: Array) -> Array:
    """Measured peaks, else estimates, scaled by the ratio of both in other trials.

    Args:
        peaks: `n x 2`, measured and estimated.
    """
    memory, estimates = peaks[:, 0], peaks[:, 1]
    both = np.isfinite(memory) & np.isfinite(estimates)
    if not both.any():
        return memory
    ratio = float(np.median(memory[both] / estimates[both]))
    return np.where(np.isfinite(memory), memory, ratio * estimates)


def _estimated(trial: Trial) -> float:
    """The peak that the controller expected before it dispatched the trial."""
    found = trial.metrics.get("estimated_memory_bytes", trial.estimated_memory_bytes)
    return float(found) if isinstance(found, int | float) and 0 < found < math.inf else math.nan


def _memory(trial: Trial) -> float:
    """The measured peak; NaN for a trial that ran out of memory, which needed more."""
    if trial.failure == "out_of_memory":
        return math.nan
    found = _finite(trial.metrics.get("peak_memory_bytes"))
    peak = float(trial.peak_memory_bytes or 0.0) if math.isnan(found) else found
    return peak if peak > 0 else math.nan


def curve_of(trial: Trial, goal: Goal) -> Array:
    """Steps, seconds and smallest loss so far at each report of the goal's metric, `k x 3`.

    Of a goal at the end, it is the newest loss. If no report has the metric, it is one row with the
    last report's steps and seconds.
    """
    table: Array = np.array(trial.reports.curve(goal).table(len(trial.reports))).reshape(-1, WIDTH)
    points = CurvePoint(*table.T)
    rows: Array = np.column_stack([points.step, points.seconds, points.best])
    trained = (rows[:, 0] > 0) & (rows[:, 1] > 0)
    with_value: Array = rows[trained & np.isfinite(points.loss)]
    if not len(with_value):
        with_value = rows[trained][-1:]
        with_value[:, 2] = math.inf
    return with_value


def _finite(number: float | None) -> float:
    return number if number is not None and math.isfinite(number) else math.nan


def loss_of(trial: Trial, goal: Goal) -> float:
    """The goal's loss in a trial, also in one that pruned itself; NaN if it has none."""
    worth = observed(trial, goal)
    return math.nan if worth is None else goal.loss(worth)


def digest(*arrays: Array) -> bytes:
    """A hash of some arrays, as a key of results that were computed from them."""
    state = hashlib.blake2b(digest_size=16)
    for array in arrays:
        state.update(np.ascontiguousarray(array).tobytes())
    return state.digest()
