"""`AutomlSearchCV` is a search of scikit-learn: its own checks, its results, its failures."""

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils._test_common.instance_generator import _get_expected_failed_checks
from sklearn.utils.estimator_checks import check_estimator

from automl.errors import UsageError
from automl.integrations.sklearn import AutomlSearchCV

pytestmark = pytest.mark.usefixtures("frozen_heap")


@pytest.mark.parametrize(
    ("estimator", "space"),
    [
        (Ridge(), {"alpha": (0.1, 1.0)}),
        (GaussianNB(), {"var_smoothing": (1e-9, 1e-8)}),
    ],
    ids=["regressor", "classifier"],
)
def test_scikit_learns_checks_pass_as_for_grid_search(estimator: Any, space: Any) -> None:
    expected = _get_expected_failed_checks(GridSearchCV(Ridge(), {"alpha": [1.0]}))
    search = AutomlSearchCV(estimator, space, n_iter=2, suggester="sobol", cv=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(search, expected_failed_checks=expected, on_fail=None)
    assert [r["check_name"] for r in results if r["status"] == "failed"] == []
    assert {r["check_name"] for r in results if r["status"] == "xfail"} <= set(expected)
    assert sum(r["status"] == "passed" for r in results) > 30


def test_it_finds_what_a_grid_finds_and_has_its_results() -> None:
    data, target = load_iris(return_X_y=True)
    model = make_pipeline(StandardScaler(), SVC())
    space = {"svc__C": {"low": 1e-3, "high": 1e3, "log": True}, "svc__kernel": ["rbf", "linear"]}
    search = AutomlSearchCV(model, space, n_iter=12, random_state=0, return_train_score=True)
    search.fit(data, target)
    grid = GridSearchCV(
        model,
        {"svc__C": [1e-3, 1e-1, 10.0, 1e3], "svc__kernel": ["rbf", "linear"]},
        return_train_score=True,
    ).fit(data, target)
    assert set(search.cv_results_) == set(grid.cv_results_)
    assert len(search.cv_results_["params"]) == 12
    assert search.best_score_ >= grid.best_score_ - 0.01
    again = AutomlSearchCV(model, space, n_iter=12, random_state=0).fit(data, target)
    assert again.cv_results_["params"] == search.cv_results_["params"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_iter": 0}, "n_iter must be a whole number of at least 1, got 0"),
        ({"space": {}}, "parameter"),
        ({"space": {"alpha": "large"}}, "the range of 'alpha' must be"),
        ({"suggester": "baies"}, "did you mean 'bayes'"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], message: str) -> None:
    data, target = np.arange(20.0).reshape(-1, 1), np.arange(20.0)
    given = {"space": {"alpha": (0.1, 1.0)}, "n_iter": 2, "suggester": "sobol", **options}
    with pytest.raises(UsageError, match=message):
        AutomlSearchCV(Ridge(), **given).fit(data, target)


def test_estimators_and_distributions_in_a_space() -> None:
    data, target = load_iris(return_X_y=True)
    model = Pipeline([("scale", StandardScaler()), ("model", SVC())])
    space = {
        "scale": [StandardScaler(), "passthrough", None],
        "model": [SVC(), LogisticRegression(max_iter=500), SVC()],
        "model__C": {"low": 1e-2, "high": 10.0, "log": True},
    }
    search = AutomlSearchCV(model, space, n_iter=6, suggester="sobol", random_state=0, cv=2)
    search.fit(data, target)
    kinds = {type(params["model"]) for params in search.cv_results_["params"]}
    assert kinds == {SVC, LogisticRegression}
    assert all(0.01 <= params["model__C"] <= 10 for params in search.cv_results_["params"])
    assert search.best_score_ > 0.8
