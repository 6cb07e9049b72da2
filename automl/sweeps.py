"""Runs a sweep: parse the arguments, check them, wire the parts of the controller, run it.

`simulate` does so on a virtual clock: hours of a cluster in seconds, repeatably.
"""

import math
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from automl.core.text import told_how_to_resume
from automl.core.trial import LearningCurve
from search_spaces import Space
from search_spaces.change import changes
from search_spaces.errors import hinted
from workers.protocol import Event, Metric, Report

from .control.beginning import (
    StopperLike,
    SuggesterLike,
    check_spec,
    code_changed,
    create,
    read_spec,
)
from .control.machine import SafeEnd
from .core import (
    Budget,
    Constraint,
    Goal,
    Noted,
    Origin,
    Resources,
    Snapshot,
    SweepSpec,
    arguments,
    read_budget,
)
from .core.spec import follow_strategy
from .dispatch import DISPATCHERS
from .dispatch._make import choose_dispatcher, local_slots, starting
from .dispatch.base import Dispatcher
from .dispatch.simulated import Replay, SimulatedDispatcher
from .errors import UsageError
from .report import progress as shown
from .result import Result
from .suggesters.user_prior import split_prior
from .trackers.base import Tracker, check_trackers
from .trackers.ray_metrics import with_ray_metrics
from .workflows.objective import digests, goes_on, usual_stopper

if TYPE_CHECKING:
    from .ledger import Ledger
    from .workflows.beginning import Source

Objective = Callable[[Any], Any]


@hinted
def sweep(
    objective: Objective,
    space: Space | Mapping[str, Any] | None = None,
    goals: str | Goal | Iterable[str | Goal] = (),
    *,
    trials: int | None = None,
    workers: int | Mapping[str, int] | None = None,
    seed: int = SweepSpec.seed,
    constraints: str | Constraint | Iterable[str | Constraint] = (),
    budget: Budget | Mapping[str, Any] | str | float | None = None,
    suggester: SuggesterLike = SweepSpec.suggester,
    stopper: StopperLike | None = None,
    dispatcher: str = "auto",
    ray_address: str | None = None,
    resources: Resources | Mapping[str, Any] | None = None,
    store: str | os.PathLike[str] | None = None,
    name: str | None = None,
    resume: bool = False,
    replicates: str | int = SweepSpec.replicates,
    prior: "Mapping[str, Any] | Source | Iterable[Mapping[str, Any] | Source] | None" = None,
    enqueue: Mapping[str, Any] | Iterable[Mapping[str, Any]] = (),
    progress: bool | None = None,
    metrics: Iterable[Metric] = (),
    ranks: int | str = SweepSpec.ranks,
    max_steps: int | None = SweepSpec.max_steps,
    max_retries: int = SweepSpec.max_retries,
    trackers: str | Tracker | Iterable[str | Tracker] = (),
    artifacts: str | os.PathLike[str] | None = None,
) -> Result:
    """Search a space with your own objective.

    Args:
        objective: called with a trial (`trial.params`, `trial.report(step=..., **metrics)`, which
            returns False if the trial should end); returns a dict of metrics or, with one goal,
            its value.
        space: the parameters to tune: a `Space`, or a mapping of names to ranges such as
            `{"lr": (1e-5, 0.1), "layers": (1, 8), "optimizer": ["sgd", "adam"]}`. None if the
            objective says it as it runs: `trial.suggest_float("lr", 1e-5, 0.1, log=True)`.
        goals: such as "minimize loss"; with several, the result is a Pareto front.
        trials: how many, including trial 0 and failed trials.
        workers: number of slots; None for as many as the machine has room for. On a Ray cluster
            also `{"min": 2, "max": 64}`: slots come while trials wait, and go if they are idle.
        seed: of everything random. With `dispatcher="inline"` the same seed tries the same
            configurations.
        constraints: such as "peak_memory_bytes <= 8e9".
        budget: a duration ("10m"), or a mapping of `trials`, `time`, `worker_time`, `target` and
            `until`.
        suggester: "bayes", "ax", "tpe", "optuna-gp", "sobol" or "random"; or a mapping of `name`
            and its options, or your own class that inherits `Suggester`, or an object of it.
        stopper: "none", "asha", "hyperband", "median" or "curve"; or a mapping such as
            `{"name": "asha", "grace": 5, "factor": 3}`, a class that inherits `Stopper`, or an
            object of it. By default "median" if the objective calls `trial.should_prune`, else
            "none".
        dispatcher: "local" runs trials in processes of this machine, "ray" on Ray, "inline" in this
            process; "auto" is "ray" if a cluster is named (`ray_address`, the environment variable
            RAY_ADDRESS) or this process has initialised Ray, else "local".
        ray_address: of a running Ray cluster, "auto" to find one.
        resources: of a slot: `cpus`, `gpus` and `memory`. By default it has a core and, if torch
            can use one on this machine, a GPU.
        store: folder or database URL; None for `.automl`.
        name: of the sweep; must be new unless `resume` is set.
        resume: continue the sweep of that name, or begin it if there is none. The space may be
            wider or narrower than before, or have new parameters with a default: what was learned
            is kept. No parameter may be missing or change its type.
        prior: what is known before, one or a list of: good values by parameter, each a value,
            `[low, high]`, or `{"at": value, "spread": 0.1}` (a part of the range), which count
            less with every trial (piBO, Hvarfner et al. 2022); finished trials to begin with, a
            `FILE.csv`, "optuna:URL#STUDY", "sweep:NAME", an Optuna study, or a `Result`;
            "like:NAME" for an earlier sweep on other data, hardware or sizes.
        enqueue: configurations to try after trial 0; what they do not name has its default.
        progress: whether to show the progress; None for yes: in a notebook, else on standard
            error, as a view in a terminal or a line a trial. False is silent.
        metrics: that the objective reports, such as `Metric("latency", "minimize", "speed")`. The
            aspect of a metric that is not declared is guessed from its name; the report says so.
        trackers: tools that the sweep is written to while it runs: "mlflow", "wandb",
            "tensorboard", or an object of your own that inherits `Tracker`.
        replicates: whether configurations run again, each time with another seed. "auto": in the
            last fifth of the budget `bayes` runs the best again and, if runs differ, others that
            may be the best. A number: each configuration runs so many times.
        ranks: processes of a trial of your own function, one slot each.
        max_steps: the last step of a trial, if it is known; stoppers use it.
        max_retries: how often a trial runs again if its configuration did not cause its failure.
        artifacts: folder or URL that every node reaches, for the files of trials; None for the
            store.

    Every other keyword is a key of a configuration too and means the same; the reference of the
    configuration has an example of each.

    Returns:
        The result when the budget is reached.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM; the message says how the sweep is resumed. A second
            Ctrl-C ends the trials at once.
        UsageError: an argument is wrong, or no budget is given.
        StoreError: the store cannot be used.
    """
    arguments.of_type("objective", objective, Callable, "a function")
    arguments.of_type("resume", resume, bool, "True or False")
    written = arguments.listed("trackers", trackers, (str, Tracker), "the name of a tracker")
    dispatcher, ray_address = choose_dispatcher(dispatcher, ray_address)
    stopper = usual_stopper(objective, goals) if stopper is None else stopper
    expected, learns, sources = split_prior(prior)
    spec, notes = read_spec(
        space,
        goals,
        constraints,
        suggester,
        stopper,
        prior=expected,
        learns=learns,
        metrics=metrics,
        local=ray_address is None,
        name="sweep" if name is None else name,
        budget=read_budget(budget, trials=trials),
        workers=workers,
        resources=resources,
        seed=seed,
        max_retries=max_retries,
        max_steps=max_steps,
        resumable=goes_on(objective),
        ranks=ranks,
        replicates=replicates,
        trackers=check_trackers([one for one in written if isinstance(one, str)]),
        artifacts="" if artifacts is None else artifacts,
    )
    spec, line = follow_strategy(spec, local_slots(spec))
    notes += [line] if line else []
    check_spec(spec, dispatcher, objective)
    store = ".automl" if store is None else arguments.location("store", store)
    with (
        SafeEnd(),
        starting(dispatcher, spec, objective, ray_address) as start,
        _opened(store) as ledger,
    ):
        from .control.controller import conduct
        from .trackers.base import tracked
        from .workflows.beginning import begin

        configurations = arguments.listed("enqueue", enqueue, Mapping, "a configuration")
        origin = Origin(dispatcher=dispatcher, folder=str(Path.cwd()), code=digests(objective))
        spec = replace(spec, origin=origin)
        wanted, sweeps = spec.name, ledger.sweeps()
        earlier = next((info for info in sweeps if info.name == wanted), None)
        spec = begin(
            ledger,
            spec,
            sources,
            configurations,
            rename=name is None,
            resume=resume,
            tell=_warn,
        )
        if progress is not False:
            shown.say(notes)
            shown.say_which(wanted, spec.name, earlier.num_trials if earlier else 0)
            stored = ledger.spec(spec.name)
            changed = changes(stored.space, spec.space)
            if changed and spec.history.asked is None:  # else the trials say the space
                shown.say([f"the space was changed: {'; '.join(changed)}"])
            shown.say(filter(None, [code_changed(stored, spec, len(ledger.trials(spec.name)))]))
        again = f"run it again with name={spec.name!r} and resume=True"
        with (
            told_how_to_resume(again),
            shown.progress(progress) as show,
            tracked(spec, ledger, show, written) as on_change,
        ):
            snapshot = conduct(
                spec,
                ledger,
                DISPATCHERS.get(dispatcher),
                start,
                on_change=_watched(dispatcher, spec, on_change),
                resume=True,  # it may begin with imported trials
                local=ray_address is None,
            )
    if snapshot.state == "interrupted":
        raise KeyboardInterrupt(
            f"the sweep {spec.name!r} is interrupted and can be resumed: {again}"
        )
    if progress is not False:
        shown.say_why(snapshot, earlier)
    return Result(snapshot, store)


def _opened(store: str, *, readonly: bool = False) -> "closing[Ledger]":
    """A store; its package is imported while the workers start, since that takes as long."""
    from .ledger import Ledger

    return closing(Ledger.open(store, create=not readonly, readonly=readonly))


def _warn(text: str, incomplete: bool) -> None:
    if incomplete:
        warnings.warn(f"prior {text}", stacklevel=5)


def load(name: str, store: str | os.PathLike[str] | None = None) -> Result:
    """The present result of a sweep that has ended, or that runs in another process.

    Args:
        name: of the sweep.
        store: folder or database URL; None for `.automl`.

    Raises:
        UsageError: there is no sweep of that name.
        StoreError: there is no such store, or it is damaged.
    """
    name = arguments.text("name", name)
    store = ".automl" if store is None else arguments.location("store", store)
    with _opened(store, readonly=True) as ledger:
        return Result(ledger.snapshot(name), store)


def run(
    spec: SweepSpec,
    *,
    ledger: "Ledger",
    objective: Objective | None = None,
    dispatcher: str = "ray",
    ray_address: str | None = None,
    on_change: Callable[[Snapshot], None] | None = None,
    resume: bool = False,
) -> Snapshot:
    """Run a sweep that `ledger.create_sweep` has made, until its budget is reached.

    Args:
        spec: its name is the sweep's in the ledger (as `create_sweep` returned it). If `resume` is
            set, it replaces the spec in the ledger, so that a budget can be raised. If it was read
            from the ledger and its artifacts are outside of the store, name their location again:
            `ledger.spec(name).with_location("s3://bucket/sweeps")`.
        objective: the user's; None for the workload of the spec.
        dispatcher, ray_address: see `sweep`.
        on_change: called with the sweep after each commit and at least every 0.5 s.
        resume: the sweep may have run before; unfinished trials go on.

    Returns:
        The sweep. Its state is "finished", or "interrupted" after Ctrl-C or SIGTERM.

    Raises:
        UsageError: a name in the spec is unknown, or Ray cannot be reached.
        StoreError: another controller holds the sweep, or the store cannot be written to.
        AutomlError: the sweep cannot go on, for example because every suggester fails.
    """
    dispatcher, ray_address = choose_dispatcher(dispatcher, ray_address)
    check_spec(spec, dispatcher, objective)
    from .control.controller import conduct
    from .trackers.base import tracked

    with (
        tracked(spec, ledger, on_change) as watch,
        starting(dispatcher, spec, objective, ray_address) as start,
    ):
        return conduct(
            spec,
            ledger,
            DISPATCHERS.get(dispatcher),
            start,
            on_change=_watched(dispatcher, spec, watch),
            resume=resume,
            local=ray_address is None,
        )


def _watched(
    dispatcher: str, spec: SweepSpec, on_change: Callable[[Snapshot], None] | None
) -> Callable[[Snapshot], None] | None:
    return with_ray_metrics(spec.name, on_change) if dispatcher == "ray" else on_change


class Simulation(Result):
    """The result of a simulated sweep; times are virtual seconds.

    Args:
        snapshot: of the sweep.
        trajectory: (virtual seconds, best value of the first goal so far), a point for each
            improvement.
        decisions: notes on why trials were stopped, paused or resumed, and other notes, in order.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        trajectory: Sequence[tuple[float, float]],
        decisions: Sequence[Noted] = (),
    ) -> None:
        super().__init__(snapshot)
        self.trajectory = list(trajectory)
        self.decisions = list(decisions)


def simulate(
    replay: Replay,
    space: Space | Mapping[str, Any],
    goals: str | Goal | Iterable[str | Goal],
    *,
    workers: int = 1,
    seconds: float | None = None,
    seed: int = SweepSpec.seed,
    trials: int | None = None,
    budget: Budget | Mapping[str, Any] | str | float | None = None,
    constraints: str | Constraint | Iterable[str | Constraint] = (),
    suggester: SuggesterLike = SweepSpec.suggester,
    stopper: StopperLike = SweepSpec.stopper,
    max_steps: int | None = None,
    charge_suggestions: bool = False,
    mean_lifetime: float | None = None,
    max_retries: int = SweepSpec.max_retries,
    store: str | None = None,
    prior: Mapping[str, Any] | None = None,
    metrics: Iterable[Metric] = (),
    replicates: str | int = SweepSpec.replicates,
) -> Simulation:
    """Run a sweep whose trials are replayed on a virtual clock, with the controller of `sweep`.

    Args:
        replay: called with a configuration; yields (seconds since the last report, metrics), in
            order, and may raise `TrialFailure`. Steps are the yields, counted from 1. The generator
            of a paused trial is kept and goes on later.
        space: the parameters to tune.
        goals: such as "minimize loss".
        seconds: virtual seconds after which the sweep ends.
        trials: how many at most.
        budget: further limits that end the sweep.
        seed: the same seed gives the same simulation.
        constraints, suggester, stopper, max_steps, max_retries, replicates: as in `sweep`.
        charge_suggestions: advance the virtual clock by the real time of suggesting and deciding.
        mean_lifetime: virtual seconds after which a worker dies, in the mean; None for never.
        store: folder or URL of a ledger to write to; None to keep everything in memory.
        prior: good values by parameter; metrics: that are reported; both as in `sweep`.

    Raises:
        UsageError: an argument is wrong, or no budget is given.

    Example:
        >>> def replay(params):
        ...     for step in range(10):
        ...         yield 60.0, {"loss": params["lr"] + 1 / (step + 1)}
        >>> result = simulate(replay, space, "minimize loss", workers=8, seconds=36_000)
        >>> result.trajectory[-1]
    """
    arguments.of_type("replay", replay, Callable, "a function")
    workers = arguments.whole("workers", workers, least=1)
    if mean_lifetime is not None and arguments.finite("mean_lifetime", mean_lifetime) <= 0:
        raise UsageError(f"mean_lifetime must be above 0, got {mean_lifetime!r}")
    spec, notes = read_spec(
        space,
        goals,
        constraints,
        suggester,
        stopper,
        name="simulation",
        prior=prior,
        metrics=metrics,
        budget=read_budget(budget, trials=trials, time=seconds),
        workers=workers,
        seed=seed,
        max_retries=max_retries,
        max_steps=max_steps,
        replicates=replicates,
    )
    check_spec(spec, "simulated", lambda trial: None)
    shown.say(notes)
    goal, curves = spec.goals[0], dict[int, LearningCurve]()  # by trial
    trajectory: list[tuple[float, float]] = []

    def follow(event: Event, now: float) -> None:
        if isinstance(event, Report) and goal.metric in event.metrics:
            curve = curves.setdefault(event.trial, LearningCurve(goal, spec.constraints))
            loss = curve.add(event.metrics).loss
            if curve.is_feasible and (not trajectory or loss < goal.loss(trajectory[-1][1])):
                trajectory.append((now, goal.loss(loss)))

    def start() -> Dispatcher:
        return SimulatedDispatcher(
            replay,
            workers,
            max_steps=max_steps,
            charged=charge_suggestions,
            mean_lifetime=math.inf if mean_lifetime is None else mean_lifetime,
            seed=seed,
            on_event=follow,
        )

    from .control.controller import conduct
    from .ledger.database import IN_MEMORY

    location = IN_MEMORY if store is None else arguments.location("store", store)
    with _opened(location) as ledger:
        spec = create(ledger, spec, rename=True, described=False)
        snapshot = conduct(spec, ledger, SimulatedDispatcher, start)
        decisions = [event for event in ledger.events(spec.name) if isinstance(event, Noted)]
    return Simulation(snapshot, trajectory, decisions)
