"""A family of models, and what families share: losses and the training of small networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from search_spaces import Space

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # training x, y, test x, y
SURE = 0.01  # a smaller probability would let one test point decide about a configuration
STEPS = 60  # updates of a small network


@dataclass(frozen=True)
class Family:
    """One kind of model.

    Args:
        kind: "models" (scikit-learn and boosting), "networks" or "choices" (choices only).
        space: of its hyperparameters.
        fit: the loss on the test part of a split, of the configuration and a seed.
        data: names of its data sets, in `DATA`.
    """

    kind: str
    space: Space
    fit: Callable[[dict[str, Any], Split, int], float]
    data: tuple[str, ...]


def is_classes(y: np.ndarray) -> bool:
    return y.dtype.kind == "i"


def log_loss(probabilities: np.ndarray, classes: np.ndarray, y: np.ndarray) -> float:
    """Cross-entropy in that of a uniform guess; no probability counts as less than `SURE`."""
    rows = np.searchsorted(classes, y)
    picked = np.clip(probabilities[np.arange(len(y)), rows], SURE, 1.0)
    return float(-np.log(picked).mean() / np.log(len(classes)))


def error(predicted: np.ndarray, y: np.ndarray) -> float:
    """Root mean squared error, or the share of wrong classes."""
    if is_classes(y):
        return float((predicted != y).mean())
    return float(np.sqrt(np.mean((predicted - y) ** 2)))


def fitted(model: Any, split: Split) -> float:
    """The loss of a scikit-learn model: cross-entropy if it has probabilities."""
    x, y, test, truth = split
    model.fit(x, y)
    if is_classes(y) and hasattr(model, "predict_proba"):
        return log_loss(model.predict_proba(test), model.classes_, truth)
    return error(model.predict(test), truth)


def which(split: Split, classifier: Any, regressor: Any) -> Any:
    return classifier if is_classes(split[1]) else regressor


def trained(network: Any, optimizer: Any, schedule: Any, batch: int, split: Split) -> float:
    """Train a torch network for `STEPS` updates; its loss on the test part."""
    import torch

    dtype = torch.long if is_classes(split[1]) else torch.float32
    x, test = (torch.tensor(a, dtype=torch.float32) for a in (split[0], split[2]))
    y = torch.tensor(split[1], dtype=dtype)
    loss = torch.nn.functional.cross_entropy if is_classes(split[1]) else _squared
    network.train()
    for step in range(STEPS):
        rows = torch.randint(len(x), (batch,))
        for group in optimizer.param_groups:
            group["lr"] = schedule(step / STEPS)
        optimizer.zero_grad(set_to_none=True)
        loss(network(x[rows]), y[rows]).backward()
        optimizer.step()
    network.eval()
    with torch.no_grad():
        out = network(test)
        if is_classes(split[1]):
            chances = out.softmax(1).double().nan_to_num(0.0).numpy()
            return log_loss(chances, np.arange(chances.shape[1]), split[3])
    return error(out[:, 0].double().numpy(), split[3])


def _squared(out: Any, y: Any) -> Any:
    return (out[:, 0] - y).square().mean()


def outputs(split: Split) -> int:
    return int(split[1].max()) + 1 if is_classes(split[1]) else 1
