"""What a history says, as arrays."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from automl.core.goals import Goal
from automl.core.ranking import value
from automl.core.trial import Trial, TrialState
from search_spaces import Space

Array = NDArray[np.float64]
UNDER_WAY = frozenset({TrialState.WAITING, TrialState.RUNNING})
BLAMELESS = frozenset({"preempted"})  # failures that say nothing about the configuration


@dataclass(frozen=True)
class Data:
    """Trials that say something.

    Args:
        unit: `n x d` configurations in the unit cube, NaN where inactive.
        losses: `n x g`, goals as losses (smaller is better), NaN where a trial did not reach one.
        others: `n x c`, further metrics, likewise.
        failed: `n`, whether the configuration made the trial fail; kinds: `n`, how, or "".
        memory: `n`, peak bytes; those of a trial that ran out are estimated, NaN where they cannot be.
        curves: for each trial `k x 3`, steps, seconds and the first goal's smallest loss up to then.
    """

    unit: Array
    losses: Array
    others: Array
    failed: NDArray[np.bool_]
    kinds: NDArray[np.str_]
    memory: Array
    curves: Sequence[Array]

    def __len__(self) -> int:
        return len(self.unit)


@dataclass(frozen=True)
class Reading:
    """What one trial says: a row of `Data`, before memory is completed by `estimate`."""

    losses: list[float]
    others: list[float]
    kind: str
    memory: float
    estimate: float
    curve: Array


@dataclass(frozen=True)
class Seen:
    """A trial, whether its configuration is of the space, and what it says, if anything (yet)."""

    trial: Trial
    legal: bool
    reading: Reading | None


class Reader:
    """Reads trials as `collect` does, each only once: a history is read again for every suggestion.

    Args:
        space, goals, others: see `collect`.
    """

    def __init__(self, space: Space, goals: Sequence[Goal], others: Sequence[str]) -> None:
        self.space, self.goals, self.others = space, goals, others
        self._seen: dict[int, Seen] = {}  # by number, while it is the very trial

    def legal(self, trials: Sequence[Trial]) -> list[Trial]:
        """Without those of another space."""
        return [trial for trial in trials if self._look(trial).legal]

    def __call__(self, history: Sequence[Trial]) -> Data:
        """The trials of this space that are not under way."""
        found = [
            (trial.params, reading)
            for trial in history
            if (reading := self._look(trial).reading) is not None
        ]
        rows, read = [params for params, _ in found], [reading for _, reading in found]
        kinds = np.array([reading.kind for reading in read], dtype=np.str_)
        memory = np.array([reading.memory for reading in read], dtype=np.float64)
        estimates = np.array([reading.estimate for reading in read], dtype=np.float64)
        return Data(
            self.space.encode(rows) if rows else np.empty((0, len(self.space.parameters))),
            np.array([reading.losses for reading in read], dtype=np.float64).reshape(
                len(rows), len(self.goals)
            ),
            np.array([reading.others for reading in read], dtype=np.float64).reshape(
                len(rows), len(self.others)
            ),
            kinds != "",
            kinds,
            _completed(memory, estimates),
            [reading.curve for reading in read],
        )

    def _look(self, trial: Trial) -> Seen:
        entry = self._seen.get(trial.number)
        if entry is None or entry.trial is not trial:
            same = entry is not None and entry.trial.params is trial.params
            legal = entry.legal if entry is not None and same else self.space.legal(trial.params)
            entry = self._seen[trial.number] = Seen(
                trial, legal, self._read(trial) if legal else None
            )
        return entry

    def _read(self, trial: Trial) -> Reading | None:
        """None where the trial says nothing (yet)."""
        kind = trial.failure or ""
        if trial.state in UNDER_WAY or kind in BLAMELESS:
            return None
        losses = [loss_of(trial, goal) for goal in self.goals]
        failed = trial.state is TrialState.FAILED
        if not failed and not any(map(math.isfinite, losses)):
            if trial.state is TrialState.COMPLETED:
                failed, kind = True, "missing_metric"
            elif not trial.reports:
                return None
        return Reading(
            [math.nan if failed else value for value in losses],
            [math.nan if failed else _finite(trial.metrics.get(name)) for name in self.others],
            (kind or "crashed") if failed else "",
            _memory(trial),
            _estimated(trial),
            curve_of(trial, self.goals[0]),
        )


def collect(
    space: Space, history: Sequence[Trial], goals: Sequence[Goal], others: Sequence[str]
) -> Data:
    """Read the trials that are not under way; failures that were nobody's fault are left out. A trial that was stopped,
    paused or interrupted says what it had reported by then.

    Args:
        history: trials; those of another space are left out.
        goals: whose metrics are taken as losses; others: further metrics, as they are.
    """
    return Reader(space, goals, others)(history)


def _completed(memory: Array, estimates: Array) -> Array:
    """Measured peaks, else estimates, scaled by what was measured of others."""
    both = np.isfinite(memory) & np.isfinite(estimates)
    if not both.any():
        return memory
    factor = float(np.median(memory[both] / estimates[both]))
    return np.where(np.isfinite(memory), memory, factor * estimates)


def _estimated(trial: Trial) -> float:
    """What the controller expected before it dispatched the trial."""
    found = trial.metrics.get("estimated_memory_bytes", trial.details.get("estimated_memory_bytes"))
    return float(found) if isinstance(found, int | float) and 0 < found < math.inf else math.nan


def _memory(trial: Trial) -> float:
    """Measured peak; that of a trial that ran out says only where it ended."""
    if trial.failure == "out_of_memory":
        return math.nan
    found = _finite(trial.metrics.get("peak_memory_bytes"))
    peak = float(trial.peak_memory_bytes or 0.0) if math.isnan(found) else found
    return peak if peak > 0 else math.nan


def curve_of(trial: Trial, goal: Goal) -> Array:
    """Steps, seconds and smallest loss so far at each report of the goal's metric, `k x 3`; else of the last probe."""
    best, points = math.inf, []
    for report in trial.reports:
        value = report.metrics.get(goal.metric, math.nan)
        if math.isfinite(value) and report.step > 0 and report.seconds > 0:
            best = min(best, goal.loss(value))
            points.append((report.step, report.seconds, best))
    if (
        not points
        and trial.reports
        and trial.reports[-1].step > 0
        and trial.reports[-1].seconds > 0
    ):
        points.append((trial.reports[-1].step, trial.reports[-1].seconds, math.inf))
    return np.array(points, dtype=np.float64).reshape(len(points), 3)


def _finite(number: float | None) -> float:
    return number if number is not None and math.isfinite(number) else math.nan


def loss_of(trial: Trial, goal: Goal) -> float:
    """The goal's loss in a trial, as trials are ranked; NaN where it has none."""
    worth = value(trial, goal)
    return math.nan if worth is None else goal.loss(worth)


def digest(*arrays: Array | Sequence[object]) -> bytes:
    """Identity of some arrays, to find what was computed for them before."""
    state = hashlib.blake2b(digest_size=16)
    for array in arrays:
        state.update(
            np.ascontiguousarray(array).tobytes()
            if isinstance(array, np.ndarray)
            else repr(array).encode()
        )
    return state.digest()
