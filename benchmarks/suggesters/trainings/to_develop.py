"""Twelve families of models to develop on, each on five data sets."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.suggesters.trainings.family import (
    STEPS,
    Family,
    Split,
    fitted,
    is_classes,
    outputs,
    trained,
    which,
)
from search_spaces import Choice, Float, Int, Space


def _forest(p: dict[str, Any], split: Split, seed: int) -> float:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    model = which(split, RandomForestClassifier, RandomForestRegressor)
    return fitted(model(bootstrap=True, random_state=seed, **p), split)


FOREST = Space(
    Int("n_estimators", 3, 24, log=True),
    Int("max_depth", 1, 24, log=True),
    Int("min_samples_leaf", 1, 40, log=True),
    Float("max_features", 0.05, 1.0),
    Float("max_samples", 0.1, 1.0),
    Float("ccp_alpha", 1e-6, 0.1, log=True),
)


def _vectors(p: dict[str, Any], split: Split, seed: int) -> float:
    from sklearn.svm import SVC, SVR

    options = {"tol": 1e-2, "max_iter": 3000, **p}
    epsilon = options.pop("epsilon")
    if is_classes(split[1]):
        return fitted(SVC(**options), split)
    return fitted(SVR(epsilon=epsilon, **options), split)


VECTORS = Space(
    Float("C", 1e-3, 1e4, log=True),
    Choice("kernel", ["rbf", "poly", "sigmoid"]),
    Float("gamma", 1e-5, 10.0, log=True),
    Float("coef0", -1.0, 1.0, when={"kernel": ["poly", "sigmoid"]}),
    Int("degree", 2, 5, when={"kernel": "poly"}),
    Float("epsilon", 1e-4, 1.0, log=True),
)


def _descent(p: dict[str, Any], split: Split, seed: int) -> float:
    from sklearn.linear_model import SGDClassifier, SGDRegressor

    options = {"max_iter": 25, "tol": None, "random_state": seed, **p}
    if is_classes(split[1]):
        return fitted(SGDClassifier(loss="log_loss", **options), split)
    return fitted(SGDRegressor(loss="huber", **options), split)


DESCENT = Space(
    Float("alpha", 1e-7, 1.0, log=True),
    Float("eta0", 1e-5, 1.0, log=True),
    Choice("learning_rate", ["constant", "invscaling", "adaptive"]),
    Float("power_t", 0.05, 1.0, when={"learning_rate": "invscaling"}),
    Choice("penalty", ["l2", "l1", "elasticnet"]),
    Float("l1_ratio", 0.0, 1.0, when={"penalty": "elasticnet"}),
    Choice("average", [False, True]),
)


def _neighbours(p: dict[str, Any], split: Split, seed: int) -> float:
    from sklearn.decomposition import PCA
    from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

    x, y, test, truth = split
    kept = max(1, round(p.pop("components") * x.shape[1]))
    reduce = PCA(kept, whiten=p.pop("whiten"), random_state=0).fit(x)
    model = which(split, KNeighborsClassifier, KNeighborsRegressor)(algorithm="brute", **p)
    return fitted(model, (reduce.transform(x), y, reduce.transform(test), truth))


NEIGHBOURS = Space(
    Int("n_neighbors", 1, 80, log=True),
    Float("p", 1.0, 5.0),
    Choice("weights", ["uniform", "distance"]),
    Float("components", 0.05, 1.0),
    Choice("whiten", [False, True]),
)


def _tree(p: dict[str, Any], split: Split, seed: int) -> float:
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    model = which(split, DecisionTreeClassifier, DecisionTreeRegressor)
    return fitted(model(random_state=seed, **p), split)


TREE = Space(
    Int("max_depth", 1, 30, log=True),
    Int("min_samples_leaf", 1, 60, log=True),
    Int("min_samples_split", 2, 100, log=True),
    Float("max_features", 0.1, 1.0),
    Float("ccp_alpha", 1e-6, 0.3, log=True),
    Choice("splitter", ["best", "random"]),
)


def _boosting(p: dict[str, Any], split: Split, seed: int) -> float:
    from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor

    model = which(split, GradientBoostingClassifier, GradientBoostingRegressor)
    return fitted(model(random_state=seed, **p), split)


BOOSTING = Space(
    Float("learning_rate", 1e-3, 1.0, log=True),
    Int("n_estimators", 2, 24, log=True),
    Int("max_depth", 1, 6),
    Int("min_samples_leaf", 1, 50, log=True),
    Float("subsample", 0.2, 1.0),
    Float("max_features", 0.05, 1.0),
)


def _light(p: dict[str, Any], split: Split, seed: int) -> float:
    import lightgbm

    model = which(split, lightgbm.LGBMClassifier, lightgbm.LGBMRegressor)
    options = {"n_jobs": 1, "verbose": -1, "random_state": seed, "subsample_freq": 1, **p}
    return fitted(model(**options), split)


LIGHT = Space(
    Float("learning_rate", 1e-3, 1.0, log=True),
    Int("n_estimators", 3, 40, log=True),
    Int("num_leaves", 2, 64, log=True),
    Int("min_child_samples", 1, 80, log=True),
    Float("reg_alpha", 1e-8, 10.0, log=True),
    Float("reg_lambda", 1e-8, 100.0, log=True),
    Float("subsample", 0.2, 1.0),
    Float("colsample_bytree", 0.1, 1.0),
)


def _ridge(p: dict[str, Any], split: Split, seed: int) -> float:
    from sklearn.kernel_ridge import KernelRidge

    return fitted(KernelRidge(**p), split)


RIDGE = Space(
    Float("alpha", 1e-6, 100.0, log=True),
    Choice("kernel", ["rbf", "laplacian", "polynomial"]),
    Float("gamma", 1e-5, 10.0, log=True),
    Float("coef0", 0.0, 3.0, when={"kernel": "polynomial"}),
    Int("degree", 1, 4, when={"kernel": "polynomial"}),
)


def _splines(p: dict[str, Any], split: Split, seed: int) -> float:
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import SplineTransformer

    alpha = p.pop("alpha")
    return fitted(make_pipeline(SplineTransformer(**p), Ridge(alpha)), split)


SPLINES = Space(
    Int("n_knots", 2, 30, log=True),
    Int("degree", 0, 4),
    Float("alpha", 1e-5, 1e3, log=True),
    Choice("knots", ["uniform", "quantile"]),
    Choice("extrapolation", ["constant", "linear", "continue"]),
)


def _perceptron(p: dict[str, Any], split: Split, seed: int) -> float:
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    sizes = (p.pop("width"),) * p.pop("depth")
    options = {"max_iter": 6, "random_state": seed, **p}
    model = which(split, MLPClassifier, MLPRegressor)
    return fitted(model(hidden_layer_sizes=sizes, **options), split)


PERCEPTRON = Space(
    Float("learning_rate_init", 1e-4, 1.0, log=True),
    Float("alpha", 1e-7, 10.0, log=True),
    Int("batch_size", 8, 128, log=True),
    Int("width", 4, 96, log=True),
    Int("depth", 1, 3),
    Choice("activation", ["relu", "tanh", "logistic"]),
    Choice("solver", ["adam", "sgd"]),
    Float("momentum", 0.0, 0.99, when={"solver": "sgd"}),
)


def _network(p: dict[str, Any], split: Split, seed: int) -> float:
    import torch
    from torch import nn

    torch.manual_seed(seed)
    act = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU}[p["activation"]]
    layers: list[Any] = []
    size = split[0].shape[1]
    for _ in range(p["depth"]):
        layers += [nn.Linear(size, p["width"]), act(), nn.Dropout(p["dropout"])]
        size = p["width"]
    network = nn.Sequential(*layers, nn.Linear(size, outputs(split)))
    common = {"lr": p["lr"], "weight_decay": p["weight_decay"], "fused": True}
    if p["optimizer"] == "sgd":
        optimizer: Any = torch.optim.SGD(network.parameters(), momentum=p["momentum"], **common)
    else:
        optimizer = torch.optim.AdamW(network.parameters(), betas=(p["beta1"], 0.99), **common)

    def schedule(share: float) -> float:
        warm = min(1.0, (share + 1 / STEPS) / max(p["warmup"], 1 / STEPS))
        fallen = 0.5 * (1 + np.cos(np.pi * share)) if p["cosine"] else 1.0
        return float(p["lr"] * warm * fallen)

    return trained(network, optimizer, schedule, p["batch_size"], split)


NETWORK = Space(
    Float("lr", 1e-4, 1.0, log=True),
    Int("batch_size", 4, 128, log=True),
    Int("width", 4, 128, log=True),
    Int("depth", 1, 3),
    Float("dropout", 0.0, 0.7),
    Float("weight_decay", 1e-6, 1.0, log=True),
    Choice("activation", ["relu", "tanh", "gelu"]),
    Choice("optimizer", ["adamw", "sgd"]),
    Float("beta1", 0.5, 0.99, when={"optimizer": "adamw"}),
    Float("momentum", 0.0, 0.99, when={"optimizer": "sgd"}),
    Choice("cosine", [True, False]),
    Float("warmup", 0.0, 0.5),
)

OPERATIONS = ["none", "skip", "linear", "gated", "normed"]


def _cell(p: dict[str, Any], split: Split, seed: int) -> float:
    """A cell of four nodes whose six edges are chosen, as in NAS-Bench-201."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    width = 16

    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.both = nn.Linear(width, 2 * width)

        def forward(self, x: Any) -> Any:
            return nn.functional.glu(self.both(x))

    def operation(name: str) -> Any:
        if name == "linear":
            return nn.Sequential(nn.Linear(width, width), nn.ReLU())
        if name == "normed":
            return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.Tanh())
        return Gated() if name == "gated" else nn.Identity()

    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Linear(split[0].shape[1], width)
            self.edges = nn.ModuleList([operation(p[f"edge{i}"]) for i in range(6)])
            self.head = nn.Linear(width, outputs(split))

        def forward(self, x: Any) -> Any:
            nodes = [self.stem(x)]
            for first in (0, 1, 3):
                inputs = [
                    self.edges[first + i](node)
                    for i, node in enumerate(nodes)
                    if p[f"edge{first + i}"] != "none"
                ]
                nodes.append(sum(inputs, torch.zeros_like(nodes[0])))
            return self.head(nodes[-1])

    network = Cell()
    optimizer = torch.optim.Adam(network.parameters(), fused=True)
    return trained(network, optimizer, lambda share: 0.02 * (1 - share), 32, split)


CELL = Space(*(Choice(f"edge{i}", OPERATIONS) for i in range(6)))


CELLS = ("digits", "cancer", "curve", "shells", "moons")
MEASURED = ("diabetes", "friedman1", "sparse", "curve", "hills")
MIXED = ("digits", "flips", "shells", "friedman1", "hills")
LINEAR = ("digits", "flips", "cancer", "friedman1", "sparse")
TRAINED = ("digits", "cancer", "shells", "friedman1", "curve")
OTHER = ("cancer", "flips", "moons", "diabetes", "curve")

TO_DEVELOP: dict[str, Family] = {
    "forest": Family("models", FOREST, _forest, MIXED),
    "vectors": Family("models", VECTORS, _vectors, OTHER),
    "descent": Family("models", DESCENT, _descent, LINEAR),
    "neighbours": Family("models", NEIGHBOURS, _neighbours, OTHER),
    "tree": Family("models", TREE, _tree, MIXED),
    "boosting": Family("models", BOOSTING, _boosting, OTHER),
    "light": Family("models", LIGHT, _light, MIXED),
    "ridge": Family("models", RIDGE, _ridge, MEASURED),
    "splines": Family("models", SPLINES, _splines, MEASURED),
    "perceptron": Family("networks", PERCEPTRON, _perceptron, OTHER),
    "network": Family("networks", NETWORK, _network, TRAINED),
    "cell": Family("choices", CELL, _cell, CELLS),
}
