"""Makes the noise tables: small real trainings, each configuration of a grid with five seeds.

    python benchmarks/noise/make_tables.py develop [NAME ...]
    python benchmarks/noise/make_tables.py sealed [NAME ...]

Four tables are there to develop on. The six sealed ones have other models and other data; they are
made by this script and looked at by `noise.py --part sealed` only, each look with its reason in a
history. The data come with scikit-learn or are drawn; the split into training and validation is the
same for all seeds, so that only initial weights, order, subsets, dropout and exploration differ.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import gzip
import io
import itertools
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from sklearn import datasets, ensemble, kernel_approximation, linear_model, neural_network
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.common.options import parser
from benchmarks.noise.networks import (
    Examples,
    accuracies,
    determinations,
    perceptrons,
    recurrent,
    settings,
)

TABLES: Final = Path(__file__).parent / "tables"
SEEDS: Final = 5
Configuration = dict[str, Any]
Fill = Callable[[Sequence[Configuration]], np.ndarray]


@dataclass(frozen=True)
class NoiseTable:
    """A table to make.

    Args:
        grid: the values of each parameter.
        fill: the value of each configuration and seed, `n x SEEDS`; larger is better.
    """

    grid: Mapping[str, Sequence[Any]]
    fill: Fill

    def configurations(self) -> list[Configuration]:
        """Every configuration of the grid."""
        rows = itertools.product(*self.grid.values())
        return [dict(zip(self.grid, row, strict=True)) for row in rows]


def one_by_one(fit: Callable[[Configuration, int], Any], data: Examples) -> Fill:
    """Trains one estimator for each configuration and seed, and scores it."""
    x, y, valid_x, valid_y = (part.numpy() for part in vars(data).values())

    def fill(configurations: Sequence[Configuration]) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.array(
                [
                    [
                        max(fit(one, seed).fit(x, y).score(valid_x, valid_y), -1.0)
                        for seed in range(SEEDS)
                    ]
                    for one in configurations
                ]
            )

    return fill


def together(train: Callable[[Mapping[str, torch.Tensor]], torch.Tensor]) -> Fill:
    """Trains all networks of a table at once."""

    def fill(configurations: Sequence[Configuration]) -> np.ndarray:
        values = train(settings(list(configurations), SEEDS))
        return values.numpy().astype(float).reshape(-1, SEEDS)

    return fill


def digits() -> tuple[np.ndarray, np.ndarray]:
    return datasets.load_digits(return_X_y=True)


def geometric(low: float, high: float, count: int) -> list[float]:
    """Numbers that grow by a factor, of three digits."""
    return [float(f"{value:.3g}") for value in np.geomspace(low, high, count)]


def develop() -> dict[str, NoiseTable]:
    """The tables to develop on."""
    handwriting = Examples.split(*digits(), 250, 250)
    cancer = Examples.split(*datasets.load_breast_cancer(return_X_y=True), 60, 200)
    diabetes = Examples.split(*datasets.load_diabetes(return_X_y=True), 150, 200)
    friedman = Examples.split(*datasets.make_friedman1(400, 8, noise=1.0, random_state=7), 120, 250)
    return {
        "perceptron_digits": NoiseTable(
            {
                "rate": geometric(1e-3, 0.1, 6),
                "alpha": geometric(1e-3, 10, 3),
                "units": [4, 8, 32],
                "batch": [8, 32, 128],
            },
            one_by_one(
                lambda p, seed: neural_network.MLPClassifier(
                    (p["units"],),
                    learning_rate_init=p["rate"],
                    alpha=p["alpha"],
                    batch_size=p["batch"],
                    max_iter=6,
                    random_state=seed,
                ),
                handwriting,
            ),
        ),
        "linear_cancer": NoiseTable(
            {
                "alpha": geometric(1e-5, 1, 8),
                "rate": geometric(1e-3, 3, 8),
                "average": ["no", "yes"],
                "penalty": ["l1", "l2"],
            },
            one_by_one(
                lambda p, seed: linear_model.SGDClassifier(
                    alpha=p["alpha"],
                    eta0=p["rate"],
                    learning_rate="invscaling",
                    average=p["average"] == "yes",
                    penalty=p["penalty"],
                    max_iter=3,
                    random_state=seed,
                ),
                cancer,
            ),
        ),
        "boosting_diabetes": NoiseTable(
            {
                "rate": geometric(0.01, 1, 7),
                "subsample": [0.2, 0.4, 0.6, 0.8],
                "features": [1, 2, 8],
                "depth": [1, 2, 3],
            },
            one_by_one(
                lambda p, seed: ensemble.GradientBoostingRegressor(
                    learning_rate=p["rate"],
                    subsample=p["subsample"],
                    max_features=p["features"],
                    max_depth=p["depth"],
                    n_estimators=25,
                    random_state=seed,
                ),
                diabetes,
            ),
        ),
        "dropout_friedman": NoiseTable(
            {
                "rate": geometric(3e-3, 0.3, 7),
                "momentum": [0.0, 0.5, 0.9],
                "units": [4, 8, 32],
                "dropout": [0.0, 0.2, 0.5],
                "decay": geometric(1e-3, 0.1, 3),
            },
            together(
                lambda given: determinations(
                    perceptrons(friedman, given, 1, most_units=32), friedman.valid_y
                )
            ),
        ),
    }


def sealed() -> dict[str, NoiseTable]:
    """The tables to judge by: other models, other data."""
    blobs = datasets.make_classification(
        500, 16, n_informative=5, n_redundant=4, n_classes=3, class_sep=0.8, random_state=11
    )
    classes = Examples.split(*blobs, 150, 300)
    roll, place = datasets.make_swiss_roll(500, noise=1.0, random_state=11)
    swiss = Examples.split(roll, place, 150, 300)
    moons = Examples.split(*datasets.make_moons(500, noise=0.35, random_state=11), 80, 400)
    wine = Examples.split(*datasets.load_wine(return_X_y=True), 40, 130)
    pixels, _ = digits()
    pixels = pixels[:, pixels.std(0) > 0]
    images = Examples.split(pixels, pixels.astype(float), 200, 200)
    return {
        "forest_classes": NoiseTable(
            {
                "features": [1, 2, 4, 16],
                "depth": [2, 4, 6, 12],
                "leaf": [1, 2, 4, 8],
                "trees": [2, 4, 8],
            },
            one_by_one(
                lambda p, seed: ensemble.ExtraTreesClassifier(
                    p["trees"],
                    max_features=p["features"],
                    max_depth=p["depth"],
                    min_samples_leaf=p["leaf"],
                    random_state=seed,
                ),
                classes,
            ),
        ),
        "kernel_swiss": NoiseTable(
            {
                "gamma": geometric(1e-3, 10, 10),
                "components": [5, 10, 20, 40],
                "alpha": geometric(1e-4, 10, 6),
            },
            one_by_one(
                lambda p, seed: make_pipeline(
                    kernel_approximation.RBFSampler(
                        gamma=p["gamma"], n_components=p["components"], random_state=seed
                    ),
                    linear_model.Ridge(p["alpha"]),
                ),
                swiss,
            ),
        ),
        "bagging_wine": NoiseTable(
            {
                "samples": [0.1, 0.2, 0.4, 0.8],
                "features": [0.1, 0.3, 0.6, 1.0],
                "strength": geometric(1e-3, 10, 5),
                "members": [1, 2, 4],
            },
            one_by_one(
                lambda p, seed: ensemble.BaggingClassifier(
                    make_pipeline(StandardScaler(), linear_model.RidgeClassifier(p["strength"])),
                    p["members"],
                    max_samples=p["samples"],
                    max_features=p["features"],
                    random_state=seed,
                ),
                wine,
            ),
        ),
        "recurrent_adding": NoiseTable(
            {
                "rate": geometric(3e-3, 1, 8),
                "units": [2, 4, 8, 16],
                "clip": geometric(0.03, 3, 3),
                "scale": [0.1, 0.5, 1.0],
            },
            together(lambda given: recurrent(given, most_units=16)),
        ),
        "autoencoder_digits": NoiseTable(
            {
                "rate": geometric(3e-3, 1, 7),
                "units": [2, 4, 8, 16],
                "momentum": [0.0, 0.5, 0.9],
                "scale": [0.3, 1.0, 3.0],
            },
            together(
                lambda given: determinations(
                    perceptrons(images, given, pixels.shape[1], most_units=16, updates=80, seed=1),
                    images.valid_y,
                )
            ),
        ),
        "dropout_moons": NoiseTable(
            {
                "rate": geometric(0.01, 3, 8),
                "units": [2, 4, 16],
                "dropout": [0.0, 0.25, 0.5],
                "decay": geometric(1e-4, 0.1, 3),
            },
            together(
                lambda given: accuracies(
                    perceptrons(moons, given, 2, most_units=16, updates=60, batch=8, seed=2),
                    moons.valid_y,
                )
            ),
        ),
    }


def write(part: str, name: str, table: NoiseTable) -> None:
    """Train every configuration and write the table; the same bytes each time."""
    began = time.process_time()
    configurations = table.configurations()
    values = table.fill(configurations)
    lines = [",".join([*table.grid, *(f"value_seed{seed}" for seed in range(SEEDS))])]
    for one, found in zip(configurations, values, strict=True):
        lines.append(",".join([*map(str, one.values()), *(f"{value:.6g}" for value in found)]))
    folder = TABLES / part
    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as file:
        file.write(("\n".join(lines) + "\n").encode())
    (folder / f"{name}.csv.gz").write_bytes(buffer.getvalue())
    seconds = time.process_time() - began
    print(
        f"{name:24s} {len(configurations):5d} configurations, {seconds:.0f} CPU seconds", flush=True
    )


def main() -> None:
    """Make the tables of a part, or some of them."""
    arguments = parser(__doc__)
    arguments.add_argument("part", choices=("develop", "sealed"))
    arguments.add_argument("names", nargs="*", help="of tables; by default all of the part")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    tables = develop() if given.part == "develop" else sealed()
    for name in given.names or tables:
        write(given.part, name, tables[name])


if __name__ == "__main__":
    main()
