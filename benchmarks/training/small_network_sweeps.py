"""Sweeps of `small_network` with a budget of epochs: in three forms, and Optuna's Hyperband."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from automl import sweeps
from automl.core import Budget, Snapshot, SweepSpec, parse_goals
from automl.ledger import Ledger
from automl.workflows.steering import stop_sweep
from benchmarks.training import small_network
from benchmarks.training.small_network import DATA, EPOCHS, LINE_BYTES, LOG
from search_spaces import Float, Int, Space
from search_spaces.hardware import Hardware
from workers.command import CommandObjective
from workers.context import Context
from workers.protocol import Metric
from workers.workload import Workload

SPACE: Final = Space(
    Float("lr", 1e-4, 10.0, log=True),
    Float("momentum", 0.0, 0.99),
    Float("decay", 1e-7, 1e-1, log=True),
    Int("width", 4, 256, log=True),
    Int("batch_size", 16, 256, log=True),
    Float("gain", 0.01, 10.0, log=True),
)
PATTERNS: Final = {"loss": r"val_loss (\S+)", "step": r"epoch (\d+)"}
FORMS: Final = ("workload", "function", "command")
MAX_TRIALS: Final = 1000


class SmallNetworkWorkload(Workload):
    """The training as a workload."""

    name = "small_network"
    summary = "a small network on digits"
    goals = ("minimize loss",)
    metrics = (Metric("loss", "minimize", "quality"),)

    @classmethod
    def space(cls, hardware: Hardware) -> Space:
        """The same on all hardware."""
        return SPACE

    @classmethod
    def check(cls, data: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
        """There is nothing to choose."""

    def run(self, context: Context) -> Mapping[str, float]:
        """Train, and go on after a pause."""
        return small_network.function(context)


def run_sweep(form: str, stopper: str, seed: int, epochs: int) -> list[float]:
    """Run a sweep on one worker until so many epochs are trained.

    Args:
        form: "workload", "function" or "command".
        stopper: name of the stopping rule.
        seed: of the sweep.
        epochs: that all trials have together.

    Returns:
        The validation loss of each epoch, in the order in which they were trained.
    """
    objective: Any = None
    if form == "function":
        objective = small_network.function
    elif form == "command":
        script = (sys.executable, "-S", small_network.__file__, "{params}")
        objective = CommandObjective(script, reports=PATTERNS, goal="loss")
    spec = SweepSpec(
        name="small",
        space=SPACE,
        goals=parse_goals("minimize loss"),
        workload="small_network" if form == "workload" else None,
        budget=Budget(trials=MAX_TRIALS),
        stopper=stopper,
        workers=1,
        seed=seed,
        resumable=True,
        max_steps=EPOCHS,
        metrics=SmallNetworkWorkload.metrics,
    )
    with (
        _prepared() as (folder, log),
        closing(Ledger.open(folder / "store", create=True)) as ledger,
    ):
        ledger.create_sweep(spec)
        snapshot = sweeps.run(
            spec,
            ledger=ledger,
            objective=objective,
            dispatcher="local",
            on_change=_ending(folder / "store", spec.name, log, epochs),
        )
        failed = [trial.message for trial in snapshot.trials if trial.failure]
        assert not failed, failed[0]
        return _losses(log)[:epochs]


def run_optuna(seed: int, epochs: int) -> list[float]:
    """The same with Optuna's TPE and Hyperband, in this process."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    pruner = optuna.pruners.HyperbandPruner(min_resource=1, max_resource=EPOCHS)
    sampler = optuna.samplers.TPESampler(seed=seed)
    study = optuna.create_study(direction="minimize", sampler=sampler, pruner=pruner)
    with _prepared() as (folder, log):

        def objective(trial: Any) -> float:
            params = {name: _suggested(trial, SPACE.parameters[name]) for name in SPACE.parameters}

            def report(epoch: int, loss: float) -> bool:
                trial.report(loss, epoch)
                return not trial.should_prune()

            loss = small_network.train(params, folder, trial.number, report, resumed=False)
            if trial.should_prune():
                raise optuna.TrialPruned
            return loss["loss"]

        while len(_losses(log)) < epochs:
            study.optimize(objective, n_trials=1)
        return _losses(log)[:epochs]


def _suggested(trial: Any, parameter: Any) -> Any:
    suggest = trial.suggest_int if isinstance(parameter, Int) else trial.suggest_float
    return suggest(parameter.name, parameter.low, parameter.high, log=parameter.log)


def _ending(store: Path, name: str, log: Path, epochs: int) -> Callable[[Snapshot], None]:
    """Asks the sweep to end once so many epochs are in the log."""
    asked: list[bool] = []

    def look(snapshot: Snapshot) -> None:
        if not asked and log.stat().st_size >= LINE_BYTES * epochs:
            asked.append(True)
            with closing(Ledger.open(store)) as ledger:
                stop_sweep(ledger, name)

    return look


@contextmanager
def _prepared() -> Iterator[tuple[Path, Path]]:
    """A folder with the digits and the workload's entry point; and the log of the epochs."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "log"
        log.touch()
        small_network.write_digits(folder / "digits.npz")
        installed = folder / "small_network-1.dist-info"
        installed.mkdir()
        (installed / "METADATA").write_text("Name: small_network\nVersion: 1\n")
        target = f"{SmallNetworkWorkload.__module__}:SmallNetworkWorkload"
        (installed / "entry_points.txt").write_text(
            f"[automl.workloads]\nsmall_network = {target}\n"
        )
        sys.path.insert(0, name)
        path = os.pathsep.join(entry for entry in sys.path if entry)  # a command has no site
        os.environ |= {DATA: str(folder / "digits.npz"), LOG: str(log), "PYTHONPATH": path}
        try:
            yield folder, log
        finally:
            sys.path.remove(name)
            os.environ.clear()
            os.environ.update(before)


def _losses(log: Path) -> list[float]:
    return [float(line.split()[0]) for line in log.read_text().splitlines()]


def best_so_far(losses: list[float]) -> list[float]:
    """The best loss after each epoch."""
    return [float(loss) for loss in np.minimum.accumulate(losses)]
