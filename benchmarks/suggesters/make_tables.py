"""Computes the tables of problems/tabular.py with scikit-learn, in about 20 minutes on one core.

python benchmarks/suggesters/make_tables.py [NAME ...]
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn import datasets, ensemble, linear_model, metrics, neighbors, neural_network, svm
from sklearn.decomposition import PCA
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from benchmarks.common.options import parser
from benchmarks.suggesters.problems.tabular import Grid, grids

WORST_LOG_LOSS = 4.0
Data = tuple[np.ndarray, np.ndarray]
Fit = Callable[[dict[str, Any], list[int]], float | list[float]]


def digits(count: int) -> Data:
    x, y = datasets.load_digits(return_X_y=True)
    keep = np.random.default_rng(0).permutation(len(x))[:count]
    return x[keep] / 16, y[keep]


def cancer() -> Data:
    x, y = datasets.load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(x), y


def diabetes() -> Data:
    return datasets.load_diabetes(return_X_y=True)


def score(model: Any, data: Data, scoring: str, *, folds: int = 5) -> float:
    x, y = data
    splits = (KFold if scoring.endswith("squared_error") else StratifiedKFold)(
        folds, shuffle=True, random_state=1
    )
    return -float(
        np.mean(cross_val_score(model, x, y, cv=splits, scoring=scoring, error_score="raise"))
    )


def log_loss(y: np.ndarray, probabilities: np.ndarray, labels: np.ndarray) -> float:
    if not np.isfinite(probabilities).all():
        return WORST_LOG_LOSS
    # Smoothing, so that one sure and wrong prediction does not hide the others.
    smooth = 0.98 * probabilities + 0.02 / len(labels)
    return min(WORST_LOG_LOSS, float(metrics.log_loss(y, smooth, labels=labels)))


def staged(data: Data, folds: int, curve: Callable[[Data, Data], list[float]]) -> list[float]:
    """Mean over folds of the errors at each stage."""
    x, y = data
    kind = StratifiedKFold if y.dtype.kind == "i" else KFold
    parts = kind(folds, shuffle=True, random_state=1).split(x, y)
    return list(np.mean([curve((x[a], y[a]), (x[b], y[b])) for a, b in parts], axis=0))


def fit_svm(p: dict[str, Any], _: list[int]) -> float:
    options = {key: p[key] for key in ("gamma", "degree", "coef0") if key in p}
    model = svm.SVC(C=p["c"], kernel=p["kernel"], max_iter=5_000, **options)
    return 1 + score(model, cancer(), "balanced_accuracy", folds=3)


def fit_svr(p: dict[str, Any], _: list[int]) -> float:
    scaler = StandardScaler() if p["scale"] == "standard" else MinMaxScaler()
    model = svm.SVR(
        C=p["c"], kernel=p["kernel"], gamma=p["gamma"], epsilon=p["epsilon"], max_iter=5_000
    )
    error = score(make_pipeline(scaler, model), diabetes(), "neg_root_mean_squared_error", folds=3)
    return min(error, 200.0)


def fit_forest(p: dict[str, Any], stages: list[int]) -> list[float]:
    names = ("criterion", "max_depth", "min_samples_leaf", "max_features", "bootstrap")
    options = {name: p[name] for name in names}
    model = ensemble.RandomForestClassifier(max(stages), random_state=0, **options)

    def curve(train: Data, test: Data) -> list[float]:
        model.fit(*train)
        votes = np.cumsum([tree.predict_proba(test[0]) for tree in model.estimators_], axis=0)
        return [log_loss(test[1], votes[n - 1] / n, model.classes_) for n in stages]

    return staged(digits(400), 2, curve)


def by_trees(
    model: Any, predict: str, error: Callable[[Any, Any], float], data: Data, stages: list[int]
) -> list[float]:
    """Errors of a boosted model after each of `stages` trees; `predict` yields all of them."""

    def curve(train: Data, test: Data) -> list[float]:
        predictions = list(getattr(model.fit(*train), predict)(test[0]))
        return [error(test[1], predictions[n - 1]) for n in stages]

    return staged(data, 2, curve)


def fit_boosting_regressor(p: dict[str, Any], stages: list[int]) -> list[float]:
    names = ("loss", "learning_rate", "max_depth", "min_samples_leaf", "subsample")
    options = {name: p[name] for name in names}
    model = ensemble.GradientBoostingRegressor(n_estimators=max(stages), random_state=0, **options)

    def error(truth: Any, predicted: Any) -> float:
        return min(120.0, float(np.sqrt(np.mean((predicted - truth) ** 2))))

    return by_trees(model, "staged_predict", error, diabetes(), stages)


def fit_boosting_classifier(p: dict[str, Any], stages: list[int]) -> list[float]:
    names = ("learning_rate", "max_depth", "max_features", "subsample")
    options = {name: p[name] for name in names}
    model = ensemble.GradientBoostingClassifier(n_estimators=max(stages), random_state=0, **options)

    def error(truth: Any, predicted: Any) -> float:
        return float(log_loss(truth, predicted, model.classes_))

    return by_trees(model, "staged_predict_proba", error, cancer(), stages)


def by_epochs(build: Callable[[], Any], data: Data, folds: int, stages: list[int]) -> list[float]:
    """Log loss after each of `stages` passes over the training data."""

    def curve(train: Data, test: Data) -> list[float]:
        model = build()
        labels = np.unique(train[1])
        errors = []
        for epoch in range(1, max(stages) + 1):
            model.partial_fit(*train, classes=labels)
            if epoch in stages:
                errors.append(log_loss(test[1], model.predict_proba(test[0]), labels))
        return errors

    return staged(data, folds, curve)


def fit_mlp(p: dict[str, Any], stages: list[int]) -> list[float]:
    def build() -> Any:
        return neural_network.MLPClassifier(
            (p["hidden"],),
            activation=p["activation"],
            solver=p["solver"],
            alpha=p["alpha"],
            batch_size=p["batch_size"],
            learning_rate_init=p["learning_rate"],
            momentum=p.get("momentum", 0.0),
            random_state=0,
        )

    return by_epochs(build, digits(300), 2, stages)


def fit_sgd(p: dict[str, Any], stages: list[int]) -> list[float]:
    def build() -> Any:
        return linear_model.SGDClassifier(
            loss=p["loss"],
            penalty=p["penalty"],
            alpha=p["alpha"],
            l1_ratio=p.get("l1_ratio", 0.0),
            learning_rate="invscaling",
            eta0=p["eta0"],
            power_t=p["power_t"],
            random_state=0,
        )

    return by_epochs(build, cancer(), 3, stages)


def fit_neighbours(p: dict[str, Any], _: list[int]) -> float:
    steps: list[Any] = {"none": [], "standard": [StandardScaler()], "uniform": [MinMaxScaler()]}[
        p["scale"]
    ][:]
    if p["reduce"]:
        steps.append(PCA(p["components"], random_state=0))
    model = neighbors.KNeighborsClassifier(p["num_neighbours"], weights=p["weights"], p=p["p"])
    return 1 + score(make_pipeline(*steps, model), digits(400), "accuracy", folds=3)


FITS: dict[str, Fit] = {
    "svm_breast_cancer": fit_svm,
    "svr_diabetes": fit_svr,
    "forest_digits": fit_forest,
    "boosting_diabetes": fit_boosting_regressor,
    "boosting_breast_cancer": fit_boosting_classifier,
    "mlp_digits": fit_mlp,
    "sgd_breast_cancer": fit_sgd,
    "neighbours_digits": fit_neighbours,
}


def compute(grid: Grid, fit: Fit) -> dict[str, np.ndarray]:
    """The array of every branch; one fit gives the whole last axis, the staged number."""
    arrays = {}
    stages = [int(value) for value in grid.values[grid.staged]] if grid.staged else []
    for i, branch in enumerate(grid.branches()):
        names = grid.axes(branch)
        fitted = [name for name in names if name != grid.staged]
        points = itertools.product(*(grid.knots(name) for name in fitted))
        rows = [
            fit({**dict(branch), **dict(zip(fitted, point, strict=True))}, stages)
            for point in points
        ]
        arrays[f"branch_{i}"] = np.array(rows, dtype=np.float32).reshape(
            [len(grid.values[name]) for name in names]
        )
        print(f"{grid.name} {dict(branch)} best {arrays[f'branch_{i}'].min():.4g}", flush=True)
    return arrays


def main() -> None:
    make_tables(__doc__, grids(), FITS)


def make_tables(about: str | None, known: Sequence[Grid], fits: Mapping[str, Fit]) -> None:
    """Compute the tables that the command line names, or all of them."""
    options = parser(about)
    options.add_argument("names", nargs="*", metavar="NAME", help="default: all tables")
    names = options.parse_args().names
    warnings.simplefilter("ignore")
    for grid in known:
        if grid.name in names or not names:
            started = time.perf_counter()
            grid.folder.mkdir(exist_ok=True)
            np.savez_compressed(grid.path, **compute(grid, fits[grid.name]))  # type: ignore[arg-type]
            print(f"{grid.name}: {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
