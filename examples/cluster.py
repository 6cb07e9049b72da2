"""On a Ray cluster: connect first, and every worker that has room takes part.

    ray start --head                               on the first machine
    ray start --address FIRST:6379                 on each further one
    python examples/cluster.py --address auto      on any of them

The project must be installed on every machine. Only the machine that runs this needs the store.
"""

from __future__ import annotations

import argparse
import socket
from typing import Any

import automl
from automl import Float, Space

SPACE = Space(Float("x", -5.0, 5.0, default=4.0), Float("y", -5.0, 5.0, default=4.0))


def objective(trial: Any) -> dict[str, float]:
    """Himmelblau's function; prints the machine that computed it: automl logs himmelblau 0."""
    x, y = trial.params["x"], trial.params["y"]
    print(f"computed on {socket.gethostname()}")
    return {"value": (x**2 + y - 11) ** 2 + (x + y**2 - 7) ** 2}


def main(
    trials: int = 40,
    address: str | None = None,
    workers: int | None = None,
    dispatcher: str = "ray",
) -> automl.Result:
    """Use the cluster at `address`; without one, a Ray of its own on this machine."""
    if address is not None:
        import ray

        ray.init(address=address, log_to_driver=False)
    result = automl.sweep(
        objective,
        SPACE,
        "minimize value",
        trials=trials,
        workers=workers,  # None: as many as there is room for
        resources={"cpus": 1},
        dispatcher=dispatcher,
        name="himmelblau",
        resume=True,
    )
    print(f"value {result.best.value:.4f}")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--address", help="of the cluster's head, or 'auto'")
    parser.add_argument("--workers", type=int)
    given = parser.parse_args()
    main(given.trials, given.address, given.workers)
