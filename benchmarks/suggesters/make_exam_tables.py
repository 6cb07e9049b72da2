"""Computes the tables of problems/exam_real.py with scikit-learn, in about 20 minutes on one core.

python benchmarks/suggesters/make_exam_tables.py [NAME ...]
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from sklearn import datasets, ensemble, kernel_ridge, linear_model, neural_network, svm, tree
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MinMaxScaler,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    StandardScaler,
)

from benchmarks.suggesters.make_tables import (
    Data,
    Fit,
    diabetes,
    log_loss,
    make_tables,
    score,
    staged,
)
from benchmarks.suggesters.problems.exam_real import grids


@cache
def wine() -> Data:
    return datasets.load_wine(return_X_y=True)


@cache
def classification() -> Data:
    x, y = datasets.make_classification(
        400, 20, n_informative=6, n_redundant=4, n_classes=3, class_sep=0.8, random_state=7
    )
    return StandardScaler().fit_transform(x), y


@cache
def friedman() -> Data:
    x, y = datasets.make_friedman1(250, 8, noise=1.0, random_state=7)
    return x, (y - y.mean()) / y.std()


def root_mean_square(error: np.ndarray, most: float) -> float:
    with np.errstate(all="ignore"):
        found = float(np.sqrt(np.mean(error**2)))
    return min(most, found) if np.isfinite(found) else most


def fit_extra_trees(p: dict[str, Any], stages: list[int]) -> list[float]:
    names = ("criterion", "max_depth", "min_samples_split", "max_features", "bootstrap")
    options = {name: p[name] for name in names}
    model = ensemble.ExtraTreesRegressor(max(stages), random_state=0, **options)

    def curve(train: Data, test: Data) -> list[float]:
        model.fit(*train)
        sums = np.cumsum([one.predict(test[0]) for one in model.estimators_], axis=0)
        return [root_mean_square(sums[n - 1] / n - test[1], 120.0) for n in stages]

    return staged(diabetes(), 3, curve)


def fit_histogram_boosting(p: dict[str, Any], stages: list[int]) -> list[float]:
    names = ("learning_rate", "max_leaf_nodes", "min_samples_leaf", "l2_regularization")
    options = {name: p[name] for name in names}
    model = ensemble.HistGradientBoostingClassifier(
        max_iter=max(stages), early_stopping=False, random_state=0, **options
    )

    def curve(train: Data, test: Data) -> list[float]:
        predictions = list(model.fit(*train).staged_predict_proba(test[0]))
        return [log_loss(test[1], predictions[n - 1], model.classes_) for n in stages]

    return staged(classification(), 2, curve)


def fit_decision_tree(p: dict[str, Any], _: list[int]) -> float:
    model = tree.DecisionTreeClassifier(random_state=0, **p)
    return 1 + score(model, wine(), "balanced_accuracy")


def fit_logistic(p: dict[str, Any], _: list[int]) -> float:
    scalers: dict[str, list[Any]] = {
        "none": [],
        "standard": [StandardScaler()],
        "uniform": [MinMaxScaler()],
    }
    steps = scalers[p["scale"]]
    if p["reduce"]:
        steps.append(PCA(p["components"], random_state=0))
    steps.append(PolynomialFeatures(p["degree"], include_bias=False))
    model = linear_model.LogisticRegression(
        C=p["c"],
        l1_ratio=float(p["penalty"] == "l1"),
        solver="saga",
        max_iter=60,
        class_weight=None if p["class_weight"] == "none" else "balanced",
        random_state=0,
    )
    return min(4.0, score(make_pipeline(*steps, model), wine(), "neg_log_loss", folds=3))


def fit_kernel_ridge(p: dict[str, Any], _: list[int]) -> float:
    model = kernel_ridge.KernelRidge(**p)
    return min(3.0, score(model, friedman(), "neg_root_mean_squared_error"))


def fit_svm(p: dict[str, Any], _: list[int]) -> float:
    steps: list[Any] = [PCA(p["components"], random_state=0)] if p["reduce"] else []
    model = svm.SVC(C=p["c"], kernel=p["kernel"], gamma=p["gamma"], max_iter=5_000)
    return 1 + score(make_pipeline(*steps, model), classification(), "accuracy", folds=3)


def fit_elastic_net(p: dict[str, Any], _: list[int]) -> float:
    steps: dict[str, Any] = {
        "none": [],
        "standard": [StandardScaler()],
        "quantile": [QuantileTransformer(n_quantiles=100)],
        "power": [PowerTransformer()],
    }
    model = linear_model.ElasticNet(
        alpha=p["alpha"], l1_ratio=p["l1_ratio"], positive=p["positive"], max_iter=300
    )
    degree = PolynomialFeatures(p["degree"], include_bias=False)
    pipeline = make_pipeline(*steps[p["transform"]], degree, model)
    return min(120.0, score(pipeline, diabetes(), "neg_root_mean_squared_error", folds=3))


def fit_mlp(p: dict[str, Any], stages: list[int]) -> list[float]:
    def curve(train: Data, test: Data) -> list[float]:
        model = neural_network.MLPRegressor(
            hidden_layer_sizes=(p["hidden"],),
            activation=p["activation"],
            solver=p["solver"],
            alpha=p["alpha"],
            batch_size=min(p["batch_size"], len(train[0])),
            learning_rate_init=p["learning_rate"],
            momentum=p.get("momentum", 0.0),
            random_state=0,
        )
        errors = []
        for epoch in range(1, max(stages) + 1):
            try:
                model.partial_fit(*train)
            except ValueError as error:
                if "non-finite" not in str(error):
                    raise
                return errors + [2.0] * (len(stages) - len(errors))
            if epoch in stages:
                errors.append(root_mean_square(model.predict(test[0]) - test[1], 2.0))
        return errors

    return staged(friedman(), 2, curve)


FITS: dict[str, Fit] = {
    "extra_trees_diabetes": fit_extra_trees,
    "histogram_boosting_classification": fit_histogram_boosting,
    "decision_tree_wine": fit_decision_tree,
    "logistic_wine": fit_logistic,
    "kernel_ridge_friedman": fit_kernel_ridge,
    "svm_classification": fit_svm,
    "elastic_net_diabetes": fit_elastic_net,
    "mlp_friedman": fit_mlp,
}


if __name__ == "__main__":
    make_tables(__doc__, grids(), FITS)
