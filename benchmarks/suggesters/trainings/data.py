"""Data sets by name, bundled and generated: standardised columns; classes or numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np


def _made(x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(x, dtype=float), np.asarray(y)
    x = (x - x.mean(0)) / np.maximum(x.std(0), 1e-9)
    if y.dtype.kind == "f":
        return x, (y - y.mean()) / y.std()
    return x, y.astype(int)


def _bundled(name: str, count: int | None = None) -> Callable[[], Any]:
    def load() -> Any:
        from sklearn import datasets

        x, y = getattr(datasets, name)(return_X_y=True)
        rows = np.random.default_rng(5).permutation(len(y))[:count]
        return _made(x[rows], y[rows])

    return functools.cache(load)


def _generated(name: str, noise_columns: int = 0, **options: Any) -> Callable[[], Any]:
    def load() -> Any:
        from sklearn import datasets

        x, y = getattr(datasets, name)(random_state=11, **options)[:2]
        extra = np.random.default_rng(6).standard_normal((len(y), noise_columns))
        y = y.astype(float) if name in NUMBERS else (y > 0) if name == "make_hastie_10_2" else y
        return _made(np.concatenate([x, extra], 1), y)

    return functools.cache(load)


NUMBERS = ("make_friedman1", "make_friedman2", "make_friedman3", "make_sparse_uncorrelated")
NUMBERS += ("make_s_curve", "make_swiss_roll")


@functools.cache
def _hills() -> Any:
    rng = np.random.default_rng(12)
    x = rng.uniform(-1, 1, (320, 4))
    y = np.sin(4 * x[:, 0]) * x[:, 1] + np.exp(-4 * x[:, 2] ** 2) + 0.2 * rng.standard_normal(320)
    return _made(x, y)


@functools.cache
def _spirals() -> Any:
    rng = np.random.default_rng(13)
    label = np.arange(390) % 3
    radius = rng.uniform(0.1, 1, 390)
    angle = 5 * radius + 2 * np.pi * label / 3 + 0.25 * rng.standard_normal(390)
    return _made(np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1), label)


@functools.cache
def _series() -> Any:
    """Lags of a Mackey-Glass series with noise, to predict six steps ahead."""
    value = [1.2] * 18
    for _ in range(1000):
        value.append(value[-1] + 0.2 * value[-18] / (1 + value[-18] ** 10) - 0.1 * value[-1])
    noisy = np.array(value[100:]) + 0.05 * np.random.default_rng(14).standard_normal(918)
    starts = np.arange(0, 890, 3)
    return _made(noisy[starts[:, None] + np.arange(20)], noisy[starts + 25])


@functools.cache
def _waves() -> Any:
    """Series of 24 steps of three classes: which of three bumps are mixed (CART's waveforms)."""
    rng = np.random.default_rng(15)
    steps = np.arange(24)
    bumps = [np.maximum(0, 6 - abs(steps - centre)) for centre in (7, 15, 11)]
    label = np.arange(390) % 3
    share = rng.random((390, 1))
    first, second = (np.array(bumps)[(label + i) % 3] for i in (0, 1))
    return _made(share * first + (1 - share) * second + 2 * rng.standard_normal((390, 24)), label)


DATA: dict[str, Callable[[], Any]] = {
    "digits": _bundled("load_digits", 420),
    "cancer": _bundled("load_breast_cancer", 400),
    "diabetes": _bundled("load_diabetes"),
    "flips": _generated(
        "make_classification", n_samples=360, n_informative=6, n_classes=3, flip_y=0.1
    ),
    "shells": _generated("make_gaussian_quantiles", 4, n_samples=390, n_features=4, n_classes=3),
    "moons": _generated("make_moons", 4, n_samples=360, noise=0.25),
    "friedman1": _generated("make_friedman1", n_samples=320, n_features=8, noise=1.0),
    "sparse": _generated("make_sparse_uncorrelated", n_samples=260, n_features=20),
    "curve": _generated("make_s_curve", 3, n_samples=320, noise=0.15),
    "hills": _hills,
    # sealed
    "wine": _bundled("load_wine"),
    "iris": _bundled("load_iris"),
    "hastie": _generated("make_hastie_10_2", n_samples=390),
    "spirals": _spirals,
    "waves": _waves,
    "friedman2": _generated("make_friedman2", 3, n_samples=300, noise=120.0),
    "friedman3": _generated("make_friedman3", 3, n_samples=300, noise=0.15),
    "roll": _generated("make_swiss_roll", 2, n_samples=300, noise=0.6),
    "series": _series,
}
