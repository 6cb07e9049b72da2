"""Optuna's samplers and pruners on the virtual clock, driven by ask, report and tell."""

from __future__ import annotations

import heapq
from typing import Any

from benchmarks.stoppers.curve_problems import NUM_WORKERS, Table

Trajectory = list[tuple[float, float]]


def optuna_run(table: Table, seed: int, pruner: str) -> Trajectory:
    """The best loss so far over virtual seconds.

    Args:
        table: the learning curves.
        seed: of the sampler.
        pruner: `hyperband`, `median` or "" (none) with TPE; `asha-stop` is random search with
            successive halving that stops trials.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    pruners: dict[str, Any] = {
        "": optuna.pruners.NopPruner(),
        "median": optuna.pruners.MedianPruner(),
        "hyperband": optuna.pruners.HyperbandPruner(min_resource=1, max_resource=table.num_steps),
        "asha-stop": optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3),
    }
    samplers = optuna.samplers
    sampler = (
        samplers.RandomSampler(seed=seed)
        if pruner == "asha-stop"
        else samplers.TPESampler(seed=seed)
    )
    study = optuna.create_study(sampler=sampler, pruner=pruners[pruner])
    agenda: list[tuple[float, int, Any, Any, int]] = []
    found: Trajectory = []
    for slot in range(NUM_WORKERS):
        _begin(study, table, agenda, 0.0, slot)
    while agenda and agenda[0][0] <= table.seconds:
        now, slot, trial, curve, step = heapq.heappop(agenda)
        loss = float(curve[step])
        if not found or loss < found[-1][1]:
            found.append((now, loss))
        trial.report(loss, step + 1)
        pruned = trial.should_prune()
        if pruned or step + 1 == table.num_steps:
            state = optuna.trial.TrialState.PRUNED if pruned else optuna.trial.TrialState.COMPLETE
            study.tell(trial, None if pruned else float(min(curve)), state=state)
            _begin(study, table, agenda, now, slot)
        else:
            heapq.heappush(agenda, (now + table.rate(trial.params), slot, trial, curve, step + 1))
    return found


def _begin(study: Any, table: Table, agenda: list[Any], now: float, slot: int) -> None:
    trial = study.ask()
    for name, axis in table.axes.items():
        trial.suggest_float(name, float(axis[0]), float(axis[-1]), log=True)
    heapq.heappush(
        agenda, (now + table.rate(trial.params), slot, trial, table.curve(trial.params), 0)
    )
