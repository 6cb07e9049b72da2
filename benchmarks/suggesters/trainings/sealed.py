"""Ten families of models that are sealed, each on three data sets."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.suggesters.trainings.family import (
    Family,
    Split,
    error,
    fitted,
    is_classes,
    log_loss,
    outputs,
    trained,
    which,
)
from search_spaces import Choice, Float, Int, Space


def _extreme(p: dict[str, Any], split: Split, seed: int) -> float:
    import xgboost

    model = which(split, xgboost.XGBClassifier, xgboost.XGBRegressor)
    return fitted(model(n_jobs=1, verbosity=0, random_state=seed, **p), split)


EXTREME = Space(
    Float("learning_rate", 1e-3, 1.0, log=True),
    Int("n_estimators", 3, 40, log=True),
    Int("max_depth", 1, 10),
    Float("min_child_weight", 0.1, 30.0, log=True),
    Float("gamma", 1e-6, 10.0, log=True),
    Float("reg_lambda", 1e-4, 100.0, log=True),
    Float("subsample", 0.2, 1.0),
    Float("colsample_bytree", 0.1, 1.0),
)


def _stumps(p: dict[str, Any], split: Split, seed: int) -> float:
    from sklearn.ensemble import BaggingClassifier, BaggingRegressor
    from sklearn.tree import ExtraTreeClassifier, ExtraTreeRegressor

    base = which(split, ExtraTreeClassifier, ExtraTreeRegressor)
    bag = which(split, BaggingClassifier, BaggingRegressor)
    one = base(
        max_depth=p.pop("max_depth"),
        min_samples_leaf=p.pop("min_samples_leaf"),
        min_impurity_decrease=p.pop("min_impurity_decrease"),
    )
    return fitted(bag(one, random_state=seed, **p), split)


STUMPS = Space(
    Int("n_estimators", 2, 20, log=True),
    Int("max_depth", 1, 20, log=True),
    Int("min_samples_leaf", 1, 40, log=True),
    Float("min_impurity_decrease", 1e-6, 0.1, log=True),
    Float("max_samples", 0.1, 1.0),
    Float("max_features", 0.1, 1.0),
    Choice("bootstrap", [True, False]),
)


def _nystroem(p: dict[str, Any], split: Split, seed: int) -> float:
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline

    strength = p.pop("strength")
    last = which(split, LogisticRegression(C=1 / strength, max_iter=60), Ridge(strength))
    return fitted(make_pipeline(Nystroem(random_state=seed, **p), last), split)


NYSTROEM = Space(
    Choice("kernel", ["rbf", "poly", "laplacian"]),
    Float("gamma", 1e-4, 10.0, log=True),
    Int("n_components", 3, 90, log=True),
    Float("strength", 1e-5, 100.0, log=True),
    Int("degree", 1, 4, when={"kernel": "poly"}),
    Float("coef0", 0.0, 2.0, when={"kernel": "poly"}),
)


def _process(p: dict[str, Any], split: Split, seed: int) -> float:
    from sklearn.gaussian_process import GaussianProcessRegressor, kernels

    shape = p["length"]
    if p["kernel"] == "quadratic":
        kernel = kernels.RationalQuadratic(shape, p["alpha"])
    elif p["kernel"] == "matern":
        kernel = kernels.Matern(shape, nu=p["nu"])
    else:
        kernel = kernels.RBF(shape)
    kernel = kernels.ConstantKernel(p["variance"]) * kernel
    if p["linear"]:
        kernel = kernel + kernels.DotProduct(p["offset"])
    return fitted(GaussianProcessRegressor(kernel, alpha=p["noise"], optimizer=None), split)


PROCESS = Space(
    Choice("kernel", ["rbf", "matern", "quadratic"]),
    Float("length", 0.05, 50.0, log=True),
    Float("variance", 1e-2, 1e2, log=True),
    Float("noise", 1e-4, 3.0, log=True),
    Choice("nu", [0.5, 1.5, 2.5], ordered=True, when={"kernel": "matern"}),
    Float("alpha", 0.05, 20.0, log=True, when={"kernel": "quadratic"}),
    Choice("linear", [False, True]),
    Float("offset", 0.01, 10.0, log=True, when={"linear": True}),
)


def _elastic(p: dict[str, Any], split: Split, seed: int) -> float:
    from sklearn.linear_model import ElasticNet
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, PowerTransformer, StandardScaler

    steps: list[Any] = [PowerTransformer()] if p["power"] else []
    steps.append(PolynomialFeatures(p["degree"], interaction_only=p["interactions"]))
    steps.append(StandardScaler())
    last = ElasticNet(alpha=p["alpha"], l1_ratio=p["l1_ratio"], max_iter=p["iterations"])
    return fitted(make_pipeline(*steps, last), split)


ELASTIC = Space(
    Float("alpha", 1e-5, 10.0, log=True),
    Float("l1_ratio", 0.0, 1.0),
    Int("degree", 1, 3),
    Choice("interactions", [False, True]),
    Choice("power", [False, True]),
    Int("iterations", 2, 100, log=True),
)


def _discriminant(p: dict[str, Any], split: Split, seed: int) -> float:
    """Gaussian classes: each covariance is mixed with the common one and with a sphere."""
    x, y, test, truth = split
    rng = np.random.default_rng(seed)
    wide = rng.standard_normal((x.shape[1], p["projections"])) * p["scale"]
    x, test = (np.concatenate([a, np.tanh(a @ wide)], 1) for a in (x, test))
    classes = np.unique(y)
    common = sum(np.cov(x[y == c].T) for c in classes) / len(classes)
    scores = []
    for c in classes:
        own = np.cov(x[y == c].T) * (1 - p["pooled"]) + common * p["pooled"]
        sphere = np.eye(len(own)) * np.trace(own) / len(own)
        own = own * (1 - p["round"]) + sphere * p["round"] + 1e-6 * np.eye(len(own))
        gap = test - x[y == c].mean(0)
        distance = (gap @ np.linalg.inv(own) * gap).sum(1)
        scores.append(-0.5 * p["heat"] * (distance + np.linalg.slogdet(own)[1]))
    logits = np.stack(scores, 1)
    chances = np.exp(logits - logits.max(1, keepdims=True))
    return log_loss(chances / chances.sum(1, keepdims=True), classes, truth)


DISCRIMINANT = Space(
    Float("pooled", 0.0, 1.0),
    Float("round", 0.0, 1.0),
    Float("heat", 0.05, 2.0, log=True),
    Int("projections", 1, 60, log=True),
    Float("scale", 0.02, 5.0, log=True),
)


def _convolution(p: dict[str, Any], split: Split, seed: int) -> float:
    import torch
    from torch import nn

    torch.manual_seed(seed)
    channels, pad = p["channels"], p["kernel"] // 2
    layers: list[Any] = [nn.Unflatten(1, (1, -1))]
    size = 1
    for _ in range(p["layers"]):
        layers += [nn.Conv1d(size, channels, p["kernel"], padding=pad), nn.LeakyReLU(p["leak"])]
        size = channels
    pool = {"mean": nn.AdaptiveAvgPool1d, "max": nn.AdaptiveMaxPool1d}[p["pool"]]
    layers += [pool(p["bins"]), nn.Flatten(), nn.Dropout(p["dropout"])]
    network = nn.Sequential(*layers, nn.LazyLinear(outputs(split)))
    network(torch.zeros(1, split[0].shape[1]))
    options = {"lr": p["lr"], "alpha": p["smoothing"], "weight_decay": p["weight_decay"]}
    optimizer = torch.optim.RMSprop(network.parameters(), **options)
    return trained(
        network, optimizer, lambda share: p["lr"] * p["decay"] ** share, p["batch_size"], split
    )


CONVOLUTION = Space(
    Float("lr", 1e-4, 0.3, log=True),
    Float("decay", 1e-2, 1.0, log=True),
    Float("smoothing", 0.5, 0.999),
    Float("weight_decay", 1e-6, 0.3, log=True),
    Int("batch_size", 4, 64, log=True),
    Int("channels", 2, 24, log=True),
    Choice("kernel", [1, 3, 5, 7], ordered=True),
    Int("layers", 1, 2),
    Choice("pool", ["mean", "max"]),
    Int("bins", 1, 6),
    Float("dropout", 0.0, 0.7),
    Float("leak", 0.0, 0.5),
)


def _recurrent(p: dict[str, Any], split: Split, seed: int) -> float:
    """An echo state network over the columns, read out by ridge regression."""
    rng = np.random.default_rng(seed)
    units = p["units"]
    weights = rng.standard_normal((units, units)) * (rng.random((units, units)) < p["density"])
    radius = max(float(abs(np.linalg.eigvals(weights)).max()), 1e-9)
    weights *= p["radius"] / radius
    into = rng.standard_normal(units) * p["gain"]
    bias = rng.standard_normal(units) * p["bias"]

    def states(x: np.ndarray) -> np.ndarray:
        state = np.zeros((len(x), units))
        for column in x.T:
            new = np.tanh(state @ weights + column[:, None] * into + bias)
            state = (1 - p["leak"]) * state + p["leak"] * new
        return np.concatenate([state, np.ones((len(x), 1))], 1)

    x, y, test, truth = split
    inside, outside = states(x), states(test)
    target = np.eye(outputs(split))[y] if is_classes(y) else y[:, None]
    gram = inside.T @ inside + p["ridge"] * np.eye(units + 1)
    out = outside @ np.linalg.solve(gram, inside.T @ target)
    if not is_classes(y):
        return error(out[:, 0], truth)
    chances = np.exp(4 * (out - out.max(1, keepdims=True)))
    return log_loss(chances / chances.sum(1, keepdims=True), np.arange(out.shape[1]), truth)


RECURRENT = Space(
    Int("units", 5, 80, log=True),
    Float("radius", 0.05, 2.0, log=True),
    Float("leak", 0.05, 1.0),
    Float("gain", 0.01, 3.0, log=True),
    Float("bias", 0.001, 2.0, log=True),
    Float("density", 0.05, 1.0),
    Float("ridge", 1e-5, 100.0, log=True),
)


def _factors(p: dict[str, Any], split: Split, seed: int) -> float:
    import torch
    from torch import nn

    torch.manual_seed(seed)

    class Machine(nn.Module):
        """A factorisation machine: linear effects and low-rank products."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(split[0].shape[1], outputs(split))
            self.factors = nn.Parameter(
                p["init"] * torch.randn(outputs(split), split[0].shape[1], p["rank"])
            )

        def forward(self, x: Any) -> Any:
            total = torch.einsum("nd,odr->nor", x, self.factors).square()
            own = torch.einsum("nd,odr->nor", x.square(), self.factors.square())
            return self.linear(x) + 0.5 * (total - p["squares"] * own).sum(2)

    network = Machine()
    optimizer = torch.optim.Adagrad(
        [
            {"params": network.linear.parameters(), "weight_decay": p["decay_linear"]},
            {"params": [network.factors], "weight_decay": p["decay_factors"]},
        ],
        lr=p["lr"],
        fused=True,
    )
    return trained(network, optimizer, lambda share: p["lr"], p["batch_size"], split)


FACTORS = Space(
    Float("lr", 1e-4, 3.0, log=True),
    Int("rank", 1, 24, log=True),
    Float("init", 1e-4, 1.0, log=True),
    Float("squares", 0.0, 1.0),
    Float("decay_linear", 1e-6, 1.0, log=True),
    Float("decay_factors", 1e-6, 1.0, log=True),
    Int("batch_size", 2, 128, log=True),
)


def _pipeline(p: dict[str, Any], split: Split, seed: int) -> float:
    """Naive Bayes or a linear model after four steps; everything is chosen from a list."""
    from sklearn import feature_selection as selection
    from sklearn import preprocessing
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.pipeline import make_pipeline

    steps = {
        "none": None,
        "rank": preprocessing.QuantileTransformer(n_quantiles=20),
        "power": preprocessing.PowerTransformer(),
        "minmax": preprocessing.MinMaxScaler(),
        "binary": preprocessing.Binarizer(),
        "squares": preprocessing.PolynomialFeatures(2),
        "products": preprocessing.PolynomialFeatures(2, interaction_only=True),
        "bins": preprocessing.KBinsDiscretizer(4, quantile_method="averaged_inverted_cdf"),
        "splines": preprocessing.SplineTransformer(4),
        "norm": preprocessing.Normalizer(),
        "robust": preprocessing.RobustScaler(),
        "standard": preprocessing.StandardScaler(with_mean=False),
        "half": selection.SelectPercentile(percentile=50),
        "tenth": selection.SelectPercentile(percentile=10),
        "varied": selection.VarianceThreshold(0.05),
        "bayes": GaussianNB(),
        "smooth": GaussianNB(var_smoothing=0.1),
        "logistic": LogisticRegression(C=0.1, max_iter=50),
        "discriminant": LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.2),
        "trees": ExtraTreesClassifier(10, min_samples_leaf=3, random_state=seed),
    }
    from sklearn.preprocessing import FunctionTransformer

    dense = FunctionTransformer(_dense)
    order = ("before", "expand", "select", "after", "model")
    chosen = [steps[p[name]] for name in order]
    found = [step for step in chosen if step is not None]
    return fitted(make_pipeline(*found[:-1], dense, found[-1]), split)


def _dense(x: Any) -> Any:
    return x.toarray() if hasattr(x, "toarray") else x


PIPELINE = Space(
    Choice("before", ["none", "rank", "power", "minmax", "binary"]),
    Choice("expand", ["none", "squares", "products", "bins", "splines"]),
    Choice("select", ["none", "half", "tenth", "varied"]),
    Choice("after", ["none", "norm", "robust", "standard"]),
    Choice("model", ["bayes", "smooth", "logistic", "discriminant", "trees"]),
)


SEALED: dict[str, Family] = {
    "extreme": Family("models", EXTREME, _extreme, ("wine", "spirals", "friedman2")),
    "stumps": Family("models", STUMPS, _stumps, ("waves", "hastie", "friedman3")),
    "nystroem": Family("models", NYSTROEM, _nystroem, ("spirals", "wine", "roll")),
    "process": Family("models", PROCESS, _process, ("friedman2", "roll", "series")),
    "elastic": Family("models", ELASTIC, _elastic, ("friedman2", "friedman3", "roll")),
    "discriminant": Family("models", DISCRIMINANT, _discriminant, ("hastie", "spirals", "waves")),
    "convolution": Family("networks", CONVOLUTION, _convolution, ("waves", "series", "hastie")),
    "recurrent": Family("networks", RECURRENT, _recurrent, ("series", "waves", "friedman3")),
    "factors": Family("networks", FACTORS, _factors, ("hastie", "wine", "friedman2")),
    "pipeline": Family("choices", PIPELINE, _pipeline, ("iris", "waves", "hastie")),
}
