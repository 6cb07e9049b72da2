"""The same training function, tuned by this project, by Optuna (TPE + Hyperband) and by Ray Tune.

    python benchmarks/stoppers/head_to_head.py --data ../shared/data/multi30k     3 seeds, 8 minutes
    python benchmarks/stoppers/head_to_head.py --minutes 1 --within 10 --seeds 1
    python benchmarks/stoppers/head_to_head.py --quick --data DIR [--check]       ours, 4 minutes
    python benchmarks/stoppers/head_to_head.py --table [--check]                  the stored rows

Translation on two workers of one core each, with the goal `maximize bleu within 45s`. All
contestants search the same space on the same data. Ray Tune runs ASHA and needs
`pip install "ray[tune]"`. The table shows the best BLEU of each run, their mean and spread.

`--quick` gives ours half of the time that the stored rows of the peers had. Its best BLEU must
still be at least their mean.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from automl.config import load
from automl.core.spec import SweepSpec
from benchmarks.common import store
from benchmarks.common.bounds import Claim, at_least, conclude
from benchmarks.common.options import benchmark_parser
from search_spaces import Choice, Float, Int, Space
from workers.context import Context
from workers.protocol import Assignment, Limits, Outcome, Report, StopRequest
from workers.run import run

ROWS: Final = store.RESULTS / "head_to_head.jsonl"
CONFIG: Final = Path(__file__).parents[2] / "configs" / "nmt.yaml"
WORKERS: Final = 2
EVALUATIONS: Final = 5  # of a trial; a peer may stop it between them


def make_spec(within: float, minutes: float, seed: int, data: str | None) -> SweepSpec:
    """The sweep; the peers use its space, data and limits."""
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
    """Run one trial in this process, as a worker of this project does."""
    requests: list[StopRequest] = []

    def send(report: Report) -> None:
        if not goes_on(report.sequence + 1, report.metrics["bleu"]):
            requests.append(StopRequest.STOP)

    limits = Limits(spec.goals[0].within)
    assignment = Assignment(
        "peer", 0, 1, params, spec.workload, str(folder), spec.data, spec.fixed, 0, limits=limits
    )
    return run(Context(assignment, send, lambda: requests[-1] if requests else None))


def automl_run(spec: SweepSpec, folder: Path, stopper: str = "curve") -> list[float]:
    """This project, as `automl sweep` runs it; the peers stop poor trials early, too."""
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
    """TPE with Hyperband: two processes with one journal."""
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
    """The active parameters, suggested one by one."""
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
    """ASHA over random configurations, on its own Ray.

    Without it, Tune joins the Ray that ran here last, even if that one has ended.
    """
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
    "automl without a stopper": lambda spec, folder: automl_run(spec, folder, "none"),
    "optuna": optuna_run,
    "ray-tune": tune_run,
}
KEYS: Final = ("contestant", "seed", "within", "minutes", "data")
PEERS: Final = ("optuna", "ray-tune")


def measure(
    contestant: str, seed: int, within: float, minutes: float, data: str | None
) -> store.Row:
    """Run one contestant."""
    folder = Path(tempfile.mkdtemp(prefix="head-to-head-"))
    begun = time.perf_counter()
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
    """Measure the missing rows, then print the means."""
    parser = benchmark_parser(__doc__, "ours for half of the time")
    parser.add_argument(
        "--contestants", nargs="+", default=list(CONTESTANTS), choices=list(CONTESTANTS)
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--within", type=float, default=45.0)
    parser.add_argument("--data", help="folder of Multi30k; default: the built-in data")
    given = parser.parse_args()
    half: store.Row | None = None
    if given.quick:
        half = measure("automl", 0, given.within, given.minutes / 2, given.data)
        print(f"quick: {half}")
    elif not given.table:
        _measure_missing(given)
    rows = store.load(ROWS, *KEYS)
    for about in sorted({(k[0], *k[2:]) for k in rows}):
        best = [row["best"] for k, row in rows.items() if (k[0], *k[2:]) == about]
        trials = np.mean([row["trials"] for k, row in rows.items() if (k[0], *k[2:]) == about])
        figures = f"best BLEU {np.mean(best):.2f}, spread {np.std(best):.2f}, {trials:.0f} trials"
        print(f"{about}: {figures}, {best}")
    if not given.check:
        return 0
    scores = best_scores(rows.values(), given.within, given.minutes)
    found = quick_claims(scores, half) if given.quick else claims(scores, given.seeds)
    return conclude(found)


def _measure_missing(given: argparse.Namespace) -> None:
    name = Path(given.data or "built-in").name
    for seed in range(given.seeds):
        for contestant in given.contestants:
            if (contestant, seed, given.within, given.minutes, name) not in store.load(ROWS, *KEYS):
                store.append(
                    ROWS, measure(contestant, seed, given.within, given.minutes, given.data)
                )


def best_scores(
    rows: Iterable[store.Row], within: float, minutes: float
) -> dict[str, dict[int, float]]:
    """Best BLEU on Multi30k by contestant and seed."""
    best: dict[str, dict[int, float]] = {}
    for row in rows:
        if (row["within"], row["minutes"], row["data"]) == (within, minutes, "multi30k"):
            best.setdefault(row["contestant"], {})[row["seed"]] = row["best"]
    return best


def claims(best: Mapping[str, Mapping[int, float]], seeds: int) -> list[Claim]:
    """The mean of our best BLEU is at least that of each peer, over the seeds that both have."""
    found = []
    ours = best.get("automl", {})
    for peer in PEERS:
        theirs = best.get(peer, {})
        both = sorted(ours.keys() & theirs.keys())
        means = (_mean([runs[seed] for seed in both]) for runs in (ours, theirs))
        found.append(at_least(f"best BLEU beside {peer}", *means, f"{len(both)} seeds"))
        found.append(at_least(f"seeds beside {peer}", len(both) or None, seeds))
    return found


def quick_claims(best: Mapping[str, Mapping[int, float]], half: store.Row | None) -> list[Claim]:
    """Our best BLEU after half of the time is at least the mean of each peer."""
    ours = half["best"] if half and half["data"] == "multi30k" and half["trials"] else None
    name = "best BLEU in half of the time, beside {}"
    return [
        at_least(name.format(peer), ours, _mean(list(best.get(peer, {}).values())))
        for peer in PEERS
    ]


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


if __name__ == "__main__":
    sys.exit(main())
