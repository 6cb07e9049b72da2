"""The same training function, driven by this project, by Optuna (TPE + Hyperband) and by Ray Tune (ASHA).

    python -m benchmarks.stoppers.head_to_head --data ../shared/data/multi30k     # 8 minutes a run, 3 seeds; goes on
    python -m benchmarks.stoppers.head_to_head --minutes 1 --within 10 --seeds 1 --contestants automl optuna
    python -m benchmarks.stoppers.head_to_head --quick --data ...         # ours for half as long, kept nowhere, beside the rows
    python -m benchmarks.stoppers.head_to_head --report [--check]         # the rows; exit status 1 where a peer is as good

Translation on two workers of one core each, `maximize bleu within 45s` a trial; every contestant searches the same
space from the same data. Ray Tune needs `pip install "ray[tune]"`. Printed: the best BLEU of each run,
their mean and spread.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from automl.config import load
from automl.core.spec import SweepSpec
from benchmarks.common import store
from benchmarks.common.bounds import at_least, conclude
from search_spaces import Choice, Float, Int, Space
from workers.context import Context
from workers.protocol import Assignment, Limits, Outcome, Report, StopRequest
from workers.run import run

ROWS: Final = store.RESULTS / "head_to_head.jsonl"
CONFIG: Final = Path(__file__).parents[2] / "configs" / "nmt.yaml"
WORKERS: Final = 2
EVALUATIONS: Final = 5  # a trial, between which a peer may stop it


def make_spec(within: float, minutes: float, seed: int, data: str | None) -> SweepSpec:
    """The sweep; the peers take its space, data and limits."""
    overrides = [
        f"goals=maximize bleu within {within:g}s",
        f"fixed.evaluate_seconds={within / EVALUATIONS:g}",
    ]
    overrides += [
        f"budget.time={60 * minutes:g}s",
        "budget.trials=1000",
        f"seed={seed}",
        "space.parallelism=[single]",
    ]
    overrides += ["data.name=multi30k", f"data.dir={data}"] if data else []
    return load(CONFIG, overrides, objective=False).spec


def train(
    spec: SweepSpec, params: Mapping[str, Any], folder: Path, goes_on: Callable[[int, float], bool]
) -> Outcome:
    """One trial in this process: the very attempt that a worker of this project runs."""
    requests: list[StopRequest] = []

    def send(report: Report) -> None:
        if not goes_on(report.sequence + 1, report.metrics["bleu"]):
            requests.append(StopRequest.STOP)

    limits = Limits(spec.goals[0].within)
    assignment = Assignment(
        "peer", 0, 1, params, spec.workload, str(folder), spec.data, spec.fixed, 0, limits=limits
    )
    return run(Context(assignment, send, lambda: requests[-1] if requests else None))


# ---------------------------------------------------------------------- the contestants


def automl_run(spec: SweepSpec, folder: Path, stopper: str = "none") -> list[float]:
    """This project, as `automl sweep` would."""
    from automl import sweeps
    from automl.ledger import Ledger

    ledger = Ledger.open(folder, create=True)
    spec = replace(spec, stopper=stopper)
    ledger.create_sweep(spec)
    snapshot = sweeps.run(spec, ledger=ledger, objective=None, dispatcher="ray")
    ledger.close()
    return [
        max(p.metrics["bleu"] for p in trial.reports) for trial in snapshot.trials if trial.reports
    ]


def optuna_run(spec: SweepSpec, folder: Path) -> list[float]:
    """TPE with Hyperband, two processes on one journal."""
    folder.mkdir(parents=True)
    begun = time.time()
    spawn = multiprocessing.get_context("spawn")
    workers = [
        spawn.Process(target=_optuna_worker, args=(spec.to_dict(), str(folder), i, begun))
        for i in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    study = _study(spec, folder, 0)
    return [
        max(trial.intermediate_values.values())
        for trial in study.trials
        if trial.intermediate_values
    ]


def _study(spec: SweepSpec, folder: Path, number: int) -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    journal = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(folder / "journal"))
    )
    return optuna.create_study(
        study_name="peer",
        storage=journal,
        load_if_exists=True,
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=spec.seed * WORKERS + number),
        pruner=optuna.pruners.HyperbandPruner(min_resource=1, max_resource=EVALUATIONS),
    )


def _optuna_worker(given: dict[str, Any], folder: str, number: int, begun: float) -> None:
    import optuna
    import torch

    torch.set_num_threads(1)
    spec = SweepSpec.from_dict(given)
    study = _study(spec, Path(folder), number)
    until = begun + (spec.budget.time or 0.0)

    def objective(trial: Any) -> float:
        params = suggested(spec.space, trial)
        if not spec.space.legal(params):
            raise optuna.TrialPruned

        def goes_on(step: int, bleu: float) -> bool:
            trial.report(bleu, step)
            return time.time() < until and not trial.should_prune()

        outcome = train(spec, params, Path(folder) / str(trial.number), goes_on)
        if "bleu" not in outcome.metrics:
            raise optuna.TrialPruned
        return float(outcome.metrics["bleu"])

    while time.time() < until:
        study.optimize(objective, n_trials=1, catch=(Exception,))


def suggested(space: Space, trial: Any) -> dict[str, Any]:
    """The active parameters, asked for one by one."""
    params: dict[str, Any] = {}
    for name, parameter in space.parameters.items():
        if name in space.active(params | {name: parameter.middle()}):
            params[name] = _one(name, parameter, trial)
    return params


def _one(name: str, parameter: Any, trial: Any) -> Any:
    if isinstance(parameter, Float):
        return trial.suggest_float(name, parameter.low, parameter.high, log=parameter.log)
    if isinstance(parameter, Int):
        return trial.suggest_int(name, parameter.low, parameter.high, log=parameter.log)
    assert isinstance(parameter, Choice)
    return trial.suggest_categorical(name, list(parameter.choices))


def tune_run(spec: SweepSpec, folder: Path) -> list[float]:
    """ASHA over random configurations, on a Ray of its own: Tune would join whatever ran here last, alive or not."""
    import ray
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    given = spec.to_dict()

    def trainable(config: dict[str, Any]) -> None:
        own = SweepSpec.from_dict(given)

        def goes_on(step: int, bleu: float) -> bool:
            tune.report({"bleu": bleu, "training_iteration": step})
            return True

        params = {name: value for name, value in config.items() if name in own.space.active(config)}
        if own.space.legal(params):
            train(own, params, Path(tempfile.mkdtemp(dir=folder)), goes_on)

    folder.mkdir(parents=True)
    ray.init(address="local", num_cpus=WORKERS, include_dashboard=False)
    domains = {name: _domain(parameter, tune) for name, parameter in spec.space.parameters.items()}
    settings = tune.TuneConfig(
        metric="bleu",
        mode="max",
        num_samples=-1,
        time_budget_s=spec.budget.time,
        scheduler=ASHAScheduler(max_t=EVALUATIONS, grace_period=1, reduction_factor=3),
        reuse_actors=True,
    )
    results = tune.Tuner(
        tune.with_resources(trainable, {"cpu": 1}),
        param_space=domains,
        tune_config=settings,
        run_config=tune.RunConfig(storage_path=str(folder), verbose=0),
    ).fit()
    ray.shutdown()
    frames = [result.metrics_dataframe for result in results]
    return [float(frame["bleu"].max()) for frame in frames if frame is not None and "bleu" in frame]


def _domain(parameter: Any, tune: Any) -> Any:
    if isinstance(parameter, Float):
        return (tune.loguniform if parameter.log else tune.uniform)(parameter.low, parameter.high)
    if isinstance(parameter, Int):
        return (tune.lograndint if parameter.log else tune.randint)(
            parameter.low, parameter.high + 1
        )
    return tune.choice(list(parameter.choices))


CONTESTANTS: Final[dict[str, Callable[[SweepSpec, Path], list[float]]]] = {
    "automl": automl_run,
    "automl+median": partial(automl_run, stopper="median"),
    "automl+curve": partial(automl_run, stopper="curve"),
    "optuna": optuna_run,
    "ray-tune": tune_run,
}
KEYS: Final = ("contestant", "seed", "within", "minutes", "data")
USUAL: Final = ("automl", "optuna", "ray-tune")


def measure(
    contestant: str, seed: int, within: float, minutes: float, data: str | None
) -> store.Row:
    """One run of a contestant."""
    folder, begun = Path(tempfile.mkdtemp(prefix="head-to-head-")), time.perf_counter()
    try:
        found = CONTESTANTS[contestant](make_spec(within, minutes, seed, data), folder / "run")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    row = {
        "contestant": contestant,
        "seed": seed,
        "within": within,
        "minutes": minutes,
        "data": Path(data or "built-in").name,
    }
    return {
        **row,
        "best": max(found, default=0.0),
        "trials": len(found),
        "wall": round(time.perf_counter() - begun, 1),
    }


def main() -> int:
    """Measure what is missing, then print the means."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--contestants", nargs="+", default=USUAL, choices=list(CONTESTANTS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--within", type=float, default=45.0)
    parser.add_argument("--data", help="folder of Multi30k; the built-in data without")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    if given.quick:
        print(f"quick: {measure('automl', 0, given.within, given.minutes / 2, given.data)}")
    elif not given.report:
        _measure_missing(given)
    rows = store.load(ROWS, *KEYS)
    for about in sorted({(k[0], *k[2:]) for k in rows}):
        best = [row["best"] for k, row in rows.items() if (k[0], *k[2:]) == about]
        trials = np.mean([row["trials"] for k, row in rows.items() if (k[0], *k[2:]) == about])
        print(
            f"{about}: best BLEU {np.mean(best):.2f}, spread {np.std(best):.2f}, {trials:.0f} trials, {best}"
        )
    return _check(rows.values(), given) if given.check else 0


def _measure_missing(given: argparse.Namespace) -> None:
    name = Path(given.data or "built-in").name
    for seed in range(given.seeds):
        for contestant in given.contestants:
            if (contestant, seed, given.within, given.minutes, name) not in store.load(ROWS, *KEYS):
                store.append(
                    ROWS, measure(contestant, seed, given.within, given.minutes, given.data)
                )


def _check(rows: Iterable[store.Row], given: argparse.Namespace) -> int:
    """The mean of our best BLEU is more than that of each peer, over the seeds that both have."""
    best: dict[str, dict[int, float]] = {}
    for row in rows:
        if (row["within"], row["minutes"], row["data"]) == (
            given.within,
            given.minutes,
            "multi30k",
        ):
            best.setdefault(row["contestant"], {})[row["seed"]] = row["best"]
    ours, found = best.get("automl", {}), []
    for peer in USUAL[1:]:
        both = sorted(ours.keys() & best.get(peer, {}).keys())
        measured, limit = (
            float(np.mean([runs[s] for s in both])) if both else None
            for runs in (ours, best.get(peer))
        )
        found.append(
            at_least(f"best BLEU beside {peer}", measured, limit or 0.0, f"{len(both)} seeds")
        )
        found.append(at_least(f"seeds beside {peer}", float(len(both)), given.seeds))
    return conclude(found)


if __name__ == "__main__":
    sys.exit(main())
