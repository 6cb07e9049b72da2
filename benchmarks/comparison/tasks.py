"""The four tasks of the comparison: what each trial trains, in plain Python.

Every contestant calls the same function for a task. Each call writes what it measured to the file
that RECORD names, so that all contestants are judged by the same numbers, whatever they keep
themselves. Libraries are imported inside the functions: a worker loads only what its task needs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

EPOCHS = 27
MEMORY = 8_000_000  # bytes that a trial of `fit_features` may use
TRAIN, VALID = slice(0, 600), slice(600, 1200)
Params = dict[str, Any]


def record(**measured: Any) -> None:
    """Add a line to the file that RECORD names, if there is one."""
    if path := os.environ.get("RECORD"):
        with open(path, "a") as file:
            file.write(json.dumps(measured) + "\n")


@cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    """Images of handwritten digits `1797 x 64` and their labels."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return images / 16.0, labels


def classify_digits(params: Params) -> float:
    """Task 1. The error of a support vector machine in three-fold cross-validation."""
    from sklearn.decomposition import PCA
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, StandardScaler
    from sklearn.svm import SVC

    images, labels = digits()
    scaler = {"none": "passthrough", "standard": StandardScaler(), "minmax": MinMaxScaler()}
    svm = SVC(
        C=params["C"],
        gamma=params["gamma"],
        kernel=params["kernel"],
        degree=params.get("degree", 3),  # of the polynomial kernel only
    )
    directions = PCA(params["directions"], random_state=0)
    steps = make_pipeline(scaler[params["scaler"]], directions, svm)
    error = 1 - float(cross_val_score(steps, images[TRAIN], labels[TRAIN], cv=3).mean())
    record(error=error)
    return error


@cache
def spirals(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points `count x 2` on two spirals, and the spiral of each."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    label = torch.arange(count) % 2
    turn = torch.rand(count, generator=generator).sqrt() * 3 * torch.pi
    angle = turn + label * torch.pi
    points = torch.stack([turn * angle.cos(), turn * angle.sin()], 1) / 5
    return points + 0.1 * torch.randn(count, 2, generator=generator), label


def train_network(params: Params) -> Iterator[tuple[int, float]]:
    """Task 2. Train a network on the spirals: yields each epoch and the validation error."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    (x, y), (x_valid, y_valid) = spirals(600, 0), spirals(2000, 1)
    sizes = [2, *[params["width"]] * params["depth"]]
    kind = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh}[params["activation"]]
    layers = [part for a, b in pairwise(sizes) for part in (torch.nn.Linear(a, b), kind())]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(sizes[-1], 2))
    optimizer = torch.optim.SGD(model.parameters(), params["lr"], params["momentum"])
    for epoch in range(1, EPOCHS + 1):
        for rows in torch.randperm(len(x)).split(50):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
        with torch.no_grad():
            error = float((model(x_valid).argmax(1) != y_valid).float().mean())
        record(error=error, epoch=epoch)
        yield epoch, error


def grow_forest(params: Params) -> dict[str, float]:
    """Task 3. A random forest: its error, its number of nodes, its recall of the worst digit."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.metrics import recall_score

    images, labels = digits()
    forest = RandomForestClassifier(
        params["trees"],
        max_depth=params["depth"],
        min_samples_leaf=params["leaf"],
        max_features=params["features"],
        random_state=0,
    ).fit(images[TRAIN], labels[TRAIN])
    guessed = forest.predict(images[VALID])
    measured = {
        "error": float((guessed != labels[VALID]).mean()),
        "nodes": float(sum(tree.tree_.node_count for tree in forest.estimators_)),
        "recall": float(recall_score(labels[VALID], guessed, average=None).min()),
    }
    record(**measured)
    return measured


def fit_features(params: Params) -> float:
    """Task 4. Ridge regression on random features of the digits; large ones do not fit in memory.

    Raises:
        MemoryError: the matrices of this configuration need more than MEMORY bytes.
    """
    count, kind = params["features"], np.dtype(params["dtype"])
    needed = kind.itemsize * count * (count + params["block"])
    if needed > MEMORY:
        record(failed="out_of_memory")
        raise MemoryError(f"{needed} bytes are needed, {MEMORY} are there")
    images, labels = digits()
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(64, count)) * params["gamma"]
    shift = rng.uniform(0, 2 * np.pi, count)
    train, valid = (np.cos(images[part] @ weights + shift).astype(kind) for part in (TRAIN, VALID))
    gram = train.T @ train + kind.type(params["ridge"]) * np.eye(count, dtype=kind)
    found = valid @ np.linalg.solve(gram, train.T @ np.eye(10, dtype=kind)[labels[TRAIN]])
    error = float(np.mean((found - np.eye(10)[labels[VALID]]) ** 2))
    record(error=error)
    return error
