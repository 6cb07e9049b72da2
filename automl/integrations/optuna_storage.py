"""Shows sweeps as read-only Optuna studies, also while they run.

    storage = LedgerStorage(".automl")
    study = optuna.load_study(study_name="nmt", storage=storage)
    optuna.visualization.plot_param_importances(study)

With optuna-dashboard: `optuna_dashboard.run_server(LedgerStorage(".automl"))`.
"""

import copy
import math
import os
import time
from collections.abc import Container, Sequence
from datetime import datetime
from typing import Any, NoReturn

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from automl.core import Snapshot, SweepSpec, Trial, TrialState, ranking
from automl.ledger import Ledger
from search_spaces import Choice, Float, Int, Parameter, Space

TRIALS_A_STUDY = 10**7  # a trial's id is its study's id times this, plus its number
FRESH_SECONDS = 1.0  # how long a cached study is used
STATES = {
    TrialState.COMPLETED: OptunaState.COMPLETE,
    TrialState.STOPPED: OptunaState.PRUNED,
    TrialState.FAILED: OptunaState.FAIL,
    TrialState.RUNNING: OptunaState.RUNNING,
}


class ReadOnlyError(RuntimeError):
    """Only its controller may write to a sweep."""


class LedgerStorage(BaseStorage):  # type: ignore[misc]
    """An Optuna storage of the sweeps of a store. Every method that writes raises `ReadOnlyError`.

    A completed trial is COMPLETE, a stopped one PRUNED, a failed one FAIL, a waiting or paused one
    WAITING. Its value is its best report that satisfies the constraints or, if there is none, its
    best report. Its `constraints` are positive if a constraint is violated.

    Args:
        store: folder or database URL.

    Raises:
        StoreError: there is no such store.
    """

    def __init__(self, store: str | os.PathLike[str] = ".automl") -> None:
        self._ledger = Ledger.open(store, readonly=True)
        self._read: dict[str, tuple[float, list[FrozenTrial]]] = {}

    def close(self) -> None:
        """Close the store."""
        self._ledger.close()

    def get_all_studies(self) -> list[FrozenStudy]:
        """One study for each sweep."""
        return [
            FrozenStudy(
                name,
                None,
                self.get_study_user_attrs(i),
                {},
                i,
                directions=self.get_study_directions(i),
            )
            for i, name in enumerate(self._names())
        ]

    def get_study_id_from_name(self, study_name: str) -> int:
        """Index of the sweep in the store; KeyError if there is none of that name."""
        names = self._names()
        if study_name not in names:
            raise KeyError(f"there is no sweep {study_name!r}")
        return names.index(study_name)

    def get_study_name_from_id(self, study_id: int) -> str:
        """Name of the sweep; KeyError if there is none."""
        names = self._names()
        if not 0 <= study_id < len(names):
            raise KeyError(f"there is no study {study_id}")
        return names[study_id]

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        """Directions of the goals, in order."""
        return [
            StudyDirection.MAXIMIZE if goal.maximize else StudyDirection.MINIMIZE
            for goal in self._spec(study_id).goals
        ]

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        """The goals and the workload of the sweep."""
        spec = self._spec(study_id)
        return {
            "goals": "; ".join(map(str, spec.goals)),
            "trained": spec.workload or "an objective of one's own",
        }

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        """Names of the metrics of the goals."""
        return {"study:metric_names": [goal.metric for goal in self._spec(study_id).goals]}

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[OptunaState] | None = None
    ) -> list[FrozenTrial]:
        """Every trial, by number."""
        found = self._trials(self.get_study_name_from_id(study_id), study_id)
        found = [trial for trial in found if states is None or trial.state in states]
        return copy.deepcopy(found) if deepcopy else found

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """A trial by its id; KeyError if there is none."""
        study_id, number = divmod(trial_id, TRIALS_A_STUDY)
        trials = self._trials(self.get_study_name_from_id(study_id), study_id)
        if number >= len(trials):
            raise KeyError(f"there is no trial {trial_id}")
        return trials[number]

    def get_trial_id_from_study_id_trial_number(self, study_id: int, trial_number: int) -> int:
        """Id of a trial; KeyError if there is none."""
        return int(self.get_trial(study_id * TRIALS_A_STUDY + trial_number)._trial_id)

    def _names(self) -> list[str]:
        return [info.name for info in self._ledger.sweeps()]

    def _spec(self, study_id: int) -> SweepSpec:
        return self._ledger.spec(self.get_study_name_from_id(study_id))

    def _trials(self, name: str, study_id: int) -> list[FrozenTrial]:
        at, found = self._read.get(name, (-math.inf, []))
        if time.monotonic() - at > FRESH_SECONDS:
            created = next(info.created for info in self._ledger.sweeps() if info.name == name)
            found = frozen_trials(
                self._ledger.snapshot(name), self._ledger.spec(name).known_space, created, study_id
            )
            self._read[name] = (time.monotonic(), found)
        return found

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise ReadOnlyError(
            "a sweep can only be read through Optuna: start one with automl sweep or automl.sweep"
        )

    create_new_study = delete_study = create_new_trial = _refuse
    set_study_user_attr = set_study_system_attr = set_trial_user_attr = set_trial_system_attr = (
        _refuse
    )
    set_trial_param = set_trial_state_values = set_trial_intermediate_value = _refuse


def frozen_trials(
    snapshot: Snapshot, space: Space, created: float = 0.0, study_id: int = 0
) -> list[FrozenTrial]:
    """Trials of a sweep as Optuna trials; `created` is its start in seconds since 1970."""
    distributions = {name: distribution(parameter) for name, parameter in space.parameters.items()}
    return [_frozen(snapshot, trial, distributions, created, study_id) for trial in snapshot.trials]


def distribution(parameter: Parameter) -> BaseDistribution:
    """A parameter as Optuna's distribution."""
    if isinstance(parameter, Choice):
        return CategoricalDistribution(parameter.choices)
    assert isinstance(parameter, Float | Int), "there are three kinds of parameters"
    kind = IntDistribution if isinstance(parameter, Int) else FloatDistribution
    return kind(parameter.low, parameter.high, log=parameter.log, step=parameter.step)


def _frozen(
    snapshot: Snapshot,
    trial: Trial,
    distributions: dict[str, BaseDistribution],
    created: float,
    study_id: int,
) -> FrozenTrial:
    limits = snapshot.constraints
    worths = [
        value
        if (value := ranking.value(trial, goal, limits)) is not None
        else ranking.value(trial, goal)
        for goal in snapshot.goals
    ]
    values = [worth for worth in worths if worth is not None]
    state = STATES.get(trial.state, OptunaState.WAITING)
    complete = len(values) == len(worths)
    if state is OptunaState.COMPLETE and not complete:
        state = OptunaState.FAIL
    metric = snapshot.goals[0].metric
    known = {name: value for name, value in trial.params.items() if name in distributions}
    return FrozenTrial(
        number=trial.number,
        state=state,
        value=None,
        values=values if complete and state in (OptunaState.COMPLETE, OptunaState.PRUNED) else None,
        datetime_start=None
        if trial.started is None
        else datetime.fromtimestamp(created + trial.started),
        datetime_complete=datetime.fromtimestamp(created + (trial.ended or 0.0))
        if state.is_finished()
        else None,
        params=known,
        distributions={name: distributions[name] for name in known},
        user_attrs=_attributes(trial),
        system_attrs={"constraints": _excesses(snapshot, trial)} if limits else {},
        intermediate_values={
            point.step: point.metrics[metric] for point in trial.reports if metric in point.metrics
        },
        trial_id=study_id * TRIALS_A_STUDY + trial.number,
    )


def _attributes(trial: Trial) -> dict[str, Any]:
    finite = {name: value for name, value in trial.metrics.items() if math.isfinite(value)}
    facts = {"failure": trial.failure, "message": trial.message, "source": trial.source}
    return {**finite, **{name: value for name, value in facts.items() if value}}


def _excesses(snapshot: Snapshot, trial: Trial) -> Sequence[float]:
    return [
        c.excess(trial.metrics[c.metric]) if c.metric in trial.metrics else math.inf
        for c in snapshot.constraints
    ]
