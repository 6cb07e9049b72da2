"""One small training in three forms: a command, a function and a workload of a sweep.

A network with one hidden layer learns scikit-learn's digits by momentum, in numpy. An epoch takes
about 20 ms. As a command, it runs `python small_network.py --lr=0.1 ...`, and imports no torch.

SMALL_NETWORK_DATA names the file of the digits. Each epoch appends a line to the file that
SMALL_NETWORK_LOG names: its validation loss, the trial and the epoch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

EPOCHS: Final = 27
DATA: Final = "SMALL_NETWORK_DATA"
LOG: Final = "SMALL_NETWORK_LOG"
STATE: Final = "state.npz"
NUM_TRAIN: Final = 1000
WORST_LOSS: Final = 10.0  # a larger one, or one that is not finite, counts as this
LINE_BYTES: Final = 32  # of the log
Array = NDArray[np.float64]


def train(
    params: Mapping[str, Any],
    folder: Path,
    trial: int,
    report: Callable[[int, float], bool],
    *,
    resumed: bool,
) -> dict[str, float]:
    """Train to the end, or until `report` returns False.

    Args:
        params: `lr`, `momentum`, `decay`, `width`, `batch_size` and `gain`.
        folder: where the state is saved after each epoch.
        trial: number for the log.
        report: called with each epoch and its validation loss.
        resumed: go on from the saved state.
    """
    np.seterr(all="ignore")  # a large learning rate diverges
    x, y = _digits()
    rng = np.random.default_rng(0)
    width = int(params["width"])
    first = rng.normal(0, float(params["gain"]) / 8, (64, width))
    weights = [first, rng.normal(0, float(params["gain"]) / width**0.5, (width, 10))]
    velocity = [np.zeros_like(weight) for weight in weights]
    begin, loss = 1, WORST_LOSS
    if resumed:
        with np.load(folder / STATE) as state:
            begin = int(state["epoch"]) + 1
            weights = [state["w0"], state["w1"]]
            velocity = [state["v0"], state["v1"]]
    for epoch in range(begin, EPOCHS + 1):
        _one_epoch(x[:NUM_TRAIN], y[:NUM_TRAIN], weights, velocity, params, epoch)
        loss = _loss(x[NUM_TRAIN:], y[NUM_TRAIN:], weights)
        _log(f"{loss:.6f} {trial} {epoch}")
        kept = {"w0": weights[0], "w1": weights[1], "v0": velocity[0], "v1": velocity[1]}
        np.savez(folder / "new.npz", epoch=epoch, **kept)  # type: ignore[arg-type]
        (folder / "new.npz").replace(folder / STATE)
        if not report(epoch, loss):
            break
    return {"loss": loss}


def _one_epoch(
    x: Array,
    y: NDArray[np.int64],
    weights: list[Array],
    velocity: list[Array],
    params: Mapping[str, Any],
    epoch: int,
) -> None:
    order = np.random.default_rng(epoch).permutation(len(x))
    size = int(params["batch_size"])
    lr, momentum, decay = (float(params[name]) for name in ("lr", "momentum", "decay"))
    for begin in range(0, len(x), size):
        rows = order[begin : begin + size]
        hidden = np.maximum(x[rows] @ weights[0], 0)
        error = _probabilities(hidden @ weights[1])
        error[np.arange(len(rows)), y[rows]] -= 1
        error /= len(rows)
        backward = (error @ weights[1].T) * (hidden > 0)
        for i, gradient in enumerate((x[rows].T @ backward, hidden.T @ error)):
            velocity[i] = momentum * velocity[i] - lr * (gradient + decay * weights[i])
            weights[i] = weights[i] + velocity[i]


def _loss(x: Array, y: NDArray[np.int64], weights: list[Array]) -> float:
    found = _probabilities(np.maximum(x @ weights[0], 0) @ weights[1])
    loss = float(-np.log(np.maximum(found[np.arange(len(y)), y], 1e-12)).mean())
    return min(loss, WORST_LOSS) if np.isfinite(loss) else WORST_LOSS


def _probabilities(scores: Array) -> Array:
    raised = np.exp(scores - scores.max(1, keepdims=True))
    return np.asarray(raised / raised.sum(1, keepdims=True))


def _digits() -> tuple[Array, NDArray[np.int64]]:
    with np.load(os.environ[DATA]) as data:
        return data["x"], data["y"]


def write_digits(file: Path) -> None:
    """Write the digits for `train`, in a random order, with values from -0.5 to 0.5."""
    from sklearn.datasets import load_digits

    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    np.savez(file, x=found.data[order] / 16 - 0.5, y=found.target[order])


def _log(line: str) -> None:
    """Append a line of `LINE_BYTES` in one write."""
    if file := os.environ.get(LOG):
        with open(file, "ab", buffering=0) as log:
            log.write(f"{line:<{LINE_BYTES - 1}}\n".encode())


def function(trial: Any) -> dict[str, float]:
    """The training as a function of a sweep."""

    def report(epoch: int, loss: float) -> bool:
        return bool(trial.report(step=epoch, loss=loss))

    return train(trial.params, trial.checkpoint_dir, trial.number, report, resumed=trial.resumed)


def main() -> None:
    """The training as a command."""
    if "--help" in sys.argv:
        print(__doc__)
        sys.exit()
    params = dict(argument.removeprefix("--").split("=") for argument in sys.argv[1:])
    stop = Path(os.environ["AUTOML_STOP"])

    def report(epoch: int, loss: float) -> bool:
        print(f"epoch {epoch} val_loss {loss:.6f}", flush=True)
        return not stop.exists()

    train(
        params,
        Path(os.environ["AUTOML_CHECKPOINT_DIR"]),
        int(os.environ["AUTOML_TRIAL"]),
        report,
        resumed="AUTOML_RESUME" in os.environ,
    )


if __name__ == "__main__":
    main()
