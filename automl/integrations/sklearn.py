"""`AutomlSearchCV`: scikit-learn's search with cross-validation, guided by a suggester."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import numpy as np
from joblib import effective_n_jobs
from sklearn.model_selection._search import BaseSearchCV  # what scikit-learn's searches inherit
from sklearn.utils import check_random_state

from automl.core import Trial, arguments
from automl.errors import SpaceExhausted, UsageError
from automl.optimizer import Optimizer
from search_spaces import Space
from search_spaces.values import identity, is_value
from search_spaces.values import plain as to_plain

MAX_TEXT: Final = 100  # of the text that stands for an object


class AutomlSearchCV(BaseSearchCV):  # type: ignore[misc]
    """Like `GridSearchCV`, but a suggester of automl proposes each configuration from the scores.

    Configurations that fail teach it too. All else (cross-validation, several metrics, `n_jobs`,
    `refit`, `cv_results_`) is scikit-learn's. `fit` raises AutomlError if an argument is wrong.

    Args:
        estimator: to be tuned, such as a pipeline.
        space: of its parameters: a `Space`, or a mapping such as
            `{"svc__C": (1e-2, 1e3), "svc__kernel": ["rbf", "linear"]}` (see `automl.sweep`). A list
            may hold estimators and other objects.
        n_iter: number of configurations to try.
        suggester: "bayes", "tpe", "sobol" or another, as in `automl.sweep`.
        random_state: seed of the suggestions, a whole number for the same ones in each call.
        scoring, n_jobs, refit, cv, verbose, pre_dispatch, error_score, return_train_score: as in
            `GridSearchCV`. With several metrics, `refit` names the one to maximise; if it names
            none, that is the first.

    Example:
        >>> search = AutomlSearchCV(Ridge(), {"alpha": (1e-3, 10.0)}, n_iter=10).fit(X, y)
        >>> search.best_params_
    """

    _parameter_constraints: dict[str, Any] = {  # `Optimizer` checks ours, in words of its own
        **BaseSearchCV._parameter_constraints,
        **dict.fromkeys(("space", "n_iter", "suggester"), "no_validation"),
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator: Any,
        space: Space | Mapping[str, Any],
        *,
        n_iter: int = 20,
        suggester: Any = "bayes",
        scoring: Any = None,
        n_jobs: Any = None,
        refit: Any = True,
        cv: Any = None,
        verbose: int = 0,
        pre_dispatch: Any = "2*n_jobs",
        random_state: Any = None,
        error_score: Any = np.nan,
        return_train_score: bool = False,
    ) -> None:
        self.space = space
        self.n_iter = n_iter
        self.suggester = suggester
        self.random_state = random_state
        super().__init__(
            estimator=estimator,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            error_score=error_score,
            return_train_score=return_train_score,
        )

    def _run_search(self, evaluate_candidates: Callable[..., dict[str, Any]]) -> None:
        wanted = arguments.whole("n_iter", self.n_iter, least=1)
        batch = -(-effective_n_jobs(self.n_jobs) // self.n_splits_)  # each job has a split
        goal = self.refit if isinstance(self.refit, str) else _first_metric(self.scoring)
        space, objects = _plain_space(self.space)
        seed = int(check_random_state(self.random_state).randint(2**31))
        results = unusable = None
        optimizer = Optimizer(space, f"maximize {goal}", suggester=self.suggester, seed=seed)
        with optimizer:
            while trials := _ask(optimizer, min(batch, wanted - len(optimizer.trials))):
                try:
                    results = evaluate_candidates([_decoded(trial, objects) for trial in trials])
                except ValueError as error:
                    if "fits failed" not in str(error):  # scikit-learn: all of these failed
                        raise
                    unusable = error
                    for trial in trials:
                        optimizer.fail(trial, "crashed", str(error))
                    continue
                for place, trial in enumerate(trials, -len(trials)):  # the newest are the last
                    _tell(optimizer, trial, goal, results, place)
        if unusable is not None and results is None:
            raise unusable


Objects = dict[str, dict[str, Any]]  # by parameter and by the text that stands for them


def _first_metric(scoring: Any) -> str:
    """The first of several metrics; "score" if there is one without a name."""
    if isinstance(scoring, Mapping | list | tuple | set | frozenset) and scoring:
        return str(next(iter(sorted(scoring) if isinstance(scoring, set | frozenset) else scoring)))
    return "score"


def _plain_space(space: Any) -> tuple[Any, Objects]:
    """The space with plain values alone, and the objects that some of them stand for."""
    if not isinstance(space, Mapping):
        return space, {}
    plain, objects = dict(space), Objects()
    for name, entry in space.items():
        alone = isinstance(entry, list) and all(map(_is_plain, entry))
        if not isinstance(entry, list) or (alone and len(set(map(identity, entry))) == len(entry)):
            continue  # 1 and 1.0 are one choice, and two values to scikit-learn
        objects[name] = {}
        for place, one in enumerate(entry):
            text = one if isinstance(one, str) else f"{one!r}"[:MAX_TEXT]
            unused = text not in objects[name]
            # Of named parts (`estimators`, `steps`) scikit-learn takes no tuple.
            is_steps = isinstance(one, tuple) and all(isinstance(part, tuple) for part in one)
            value = list(one) if is_steps and not _is_plain(one) else one
            objects[name][text if unused else f"{text} ({place})"] = value
        plain[name] = list(objects[name])
    return plain, objects


def _is_plain(value: Any) -> bool:
    """Whether a value can be a choice itself; else a text stands for it."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    scalar = value is None or isinstance(value, bool | int | float | str | np.generic)
    return scalar and is_value(to_plain(value))


def _decoded(trial: Trial, objects: Objects) -> dict[str, Any]:
    """The parameters of a trial, with the objects that texts stand for."""
    return {
        name: objects[name][str(value)] if name in objects else value
        for name, value in trial.params.items()
    }


def _ask(optimizer: Optimizer, most: int) -> list[Trial]:
    """The next configurations to try; fewer than asked for if the space has no more."""
    trials: list[Trial] = []
    with suppress(SpaceExhausted):
        while len(trials) < most:
            trials.append(optimizer.ask())
    return trials


def _tell(optimizer: Optimizer, trial: Trial, goal: str, results: Any, place: int) -> None:
    """Tell the mean scores of a configuration, which is at this place in the results."""
    scores = {k[10:]: float(v[place]) for k, v in results.items() if k.startswith("mean_test_")}
    if goal not in scores:
        raise UsageError(f"refit must name the metric to maximise, one of {', '.join(scores)}")
    if np.isfinite(scores[goal]):
        optimizer.tell(trial, scores)
    else:
        optimizer.fail(trial, "crashed", "the estimator failed on a split")
