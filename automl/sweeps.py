"""The composition root: from a sweep's specification to a controller with everything that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from search_spaces import Space
from search_spaces.hardware import count_cpus, detect
from workers.protocol import Metric

from .control.assignments import Assigner
from .control.controller import Controller
from .control.journal import Journal
from .control.memory_guard import Forecasts
from .control.signals import Attention
from .core.environment import describe
from .core.goals import Constraint, Goal, parse_constraints, parse_duration, parse_goals
from .core.names import check_name
from .core.snapshot import Snapshot
from .core.spec import Budget, Resources, SweepSpec
from .dispatch import DISPATCHERS
from .dispatch.base import Dispatcher
from .errors import StoreError, StoreFailure, UsageError
from .ledger import Ledger, SweepLedger
from .result import Result
from .stopping import STOPPERS
from .stopping.base import Stopper
from .suggesters import SUGGESTERS
from .suggesters.base import SearchContext, Suggester
from .suggesters.domain import Domain
from .suggesters.proposer import Proposer, make_suggester
from .suggesters.queue import BackgroundSuggestionQueue, SuggestionQueue
from .suggesters.user_prior import check_prior
from .workflows.transfer import transfer as begin_with

Objective = Callable[[Any], Any]
reading: Path | None = None  # the file of an objective that the command line imports now


def run(
    spec: SweepSpec,
    *,
    ledger: Ledger,
    objective: Objective | None = None,
    dispatcher: str = "ray",
    ray_address: str | None = None,
    on_change: Callable[[Snapshot], None] | None = None,
    resume: bool = False,
) -> Snapshot:
    """Run a sweep that `ledger.create_sweep` has made, until its budget is reached, and return how it stands.

    Args:
        spec: its name is that of the sweep in the ledger (as `create_sweep` returned it); with `resume` it replaces
            the one that is kept there, so that a budget can be raised.
        objective: what a trial runs; None for the spec's workload.
        dispatcher: "ray", or "inline" for this process.
        ray_address: of a running Ray cluster, "auto" to find it; None starts one of our own.
        on_change: called from this thread with the sweep at each event and at least every 0.5 s.
        resume: the sweep may have run before; unfinished trials are taken up again.

    Returns:
        Its state is "finished", or "interrupted" after Ctrl-C or SIGTERM (nothing is raised then: exit status 130).

    Raises:
        UsageError: something in the spec is unknown here, or Ray cannot be reached.
        StoreError: another controller holds the sweep, or the store cannot be written to.
        AutomlError: the sweep cannot go on, such as when every suggester fails.
    """
    check(spec, dispatcher, objective)
    kind = DISPATCHERS.get(dispatcher)

    def start() -> Dispatcher:
        return _dispatcher(kind, spec, objective, ray_address)

    watch = _measured(spec.name, on_change) if dispatcher == "ray" else on_change
    return conduct(
        spec, ledger, kind, start, on_change=watch, resume=resume, local=ray_address is None
    )


def conduct(
    spec: SweepSpec,
    ledger: SweepLedger,
    kind: type[Dispatcher],
    start: Callable[[], Dispatcher],
    *,
    on_change: Callable[[Snapshot], None] | None = None,
    resume: bool = False,
    local: bool = True,
) -> Snapshot:
    """As `run`, on a dispatcher of that kind that `start` makes once suggestions are on their way.

    Args:
        local: whether its trials run on this machine.
    """
    recorder = ledger.acquire(spec.name)
    try:
        if recorder.trials and not resume:
            raise UsageError(
                f"sweep {spec.name!r} has run before: resume it, or choose another name"
            )
        seconds = ledger.snapshot(spec.name).seconds if recorder.trials else 0.0
        ledger.replace_spec(spec.name, spec)

        def note(message: str) -> None:
            journal.note("fallback", message)

        suggestions = _suggestions(spec, note, ahead=kind.suggests_ahead)
        stopper = _stopper(spec, spec.workload is not None or kind.keeps_paused)
        journal = Journal(spec, recorder, suggestions, seconds=seconds, on_change=on_change)
        assigner = Assigner(spec, ledger.folder(spec.name))
        with Attention(breaks_in=kind.commits_each) as attention:

            def listening() -> Dispatcher:
                made = start()
                attention.listen()  # Ray has put handlers of its own in place
                return made

            forecasts = Forecasts(spec, kind.estimates, local)
            return Controller(journal, suggestions, stopper, assigner, attention, forecasts).run(
                listening
            )
    except KeyboardInterrupt:
        return ledger.snapshot(spec.name)
    except StoreError as error:
        raise StoreFailure(
            f"{error}. To go on with the sweep: automl resume {spec.name}"
        ) from error
    finally:
        ledger.release(spec.name)


def check(spec: SweepSpec, dispatcher: str, objective: Objective | None) -> None:
    """Check that everything that the spec names exists; imports a suggester only if necessary.

    Raises:
        UsageError: something does not exist, or does not fit the rest.
    """
    check_name(spec.name)
    for registry, name in (
        (SUGGESTERS, spec.suggester),
        (STOPPERS, spec.stopper),
        (DISPATCHERS, dispatcher),
    ):
        registry.require(name)
    if spec.workload is None and objective is None:
        raise UsageError(
            f"sweep {spec.name!r} runs an objective of your own: give it as `objective`"
        )
    if spec.workload is not None and objective is not None:
        raise UsageError(
            f"sweep {spec.name!r} runs the workload {spec.workload!r}, it takes no objective"
        )
    if spec.workers is not None and spec.workers < 1:
        raise UsageError(f"workers must be at least 1, got {spec.workers}")
    if spec.budget.gain is not None and (
        len(spec.goals) > 1 or not SUGGESTERS.get(spec.suggester).predicts_gain
    ):
        raise UsageError(
            "a budget of gain needs a single goal and a suggester that predicts gains, such as "
            f"'bayes'; got {len(spec.goals)} goals and {spec.suggester!r}"
        )


def sweep(
    objective: Objective,
    space: Space,
    goals: str | Goal | Iterable[str | Goal],
    *,
    trials: int | None = None,
    workers: int | None = None,
    seed: int = 0,
    constraints: str | Constraint | Iterable[str | Constraint] = (),
    budget: Budget | Mapping[str, Any] | str | float | None = None,
    suggester: str = "bayes",
    stopper: str = "none",
    dispatcher: str = "ray",
    resources: Resources | Mapping[str, Any] | None = None,
    store: str | None = None,
    name: str | None = None,
    resume: bool = False,
    beliefs: Mapping[str, Any] | None = None,
    transfer: str | None = None,
    progress: bool | None = None,
    metrics: Iterable[Metric] = (),
) -> Result:
    """Search a space with an objective of one's own.

    Args:
        objective: called with a trial (`trial.params`, `trial.report(step=..., **metrics)`, which returns False when
            the trial should end); returns a dict of metrics.
        space: what is tuned.
        goals: such as "minimize loss"; several make a Pareto front.
        trials: how many, trial 0 and failures counted in.
        workers: number of slots; None for as many as the machine has room for.
        seed: of everything random; under `dispatcher="inline"` the same seed tries the same configurations.
        constraints: such as "peak_memory_bytes <= 8e9".
        budget: a duration ("10m"), or a mapping of `trials`, `time`, `worker_time`, `target` and `gain`.
        suggester: "bayes", "ax", "tpe", "optuna-gp", "sobol" or "random"; stopper: "none", "asha", "median", "curve".
        dispatcher: "ray", or "inline" for this process.
        resources: what a slot has: `cpus` and `gpus`.
        store: folder or database URL; `.automl` where it is None.
        name: of the sweep; must be new unless `resume` is set.
        resume: continue the sweep of that name and space, or begin it where there is none.
        beliefs: about good values, by parameter: a value, a list of values, `{"at": value, "spread": 0.1}` (a part
            of the range), or `{"weights": {choice: weight}}`. They count less with every trial (piBO, Hvarfner et
            al. 2022).
        transfer: name of an earlier sweep of something alike in the same store, whose best configurations a new sweep
            begins with and believes in.
        progress: whether to show how it goes on; None for yes in a terminal (on standard error) and in a notebook.
        metrics: what the objective reports, such as `Metric("latency", "minimize", "speed")`. The
            aspect of a metric that is not declared is guessed from its name; the report says so.

    Returns:
        What there is when the budget is reached, or after Ctrl-C; then the sweep can be resumed.

    Raises:
        UsageError: an argument is wrong, or no budget is given.
        StoreError: the store cannot be used.
    """
    if reading is not None:
        raise UsageError(
            f"{reading.name} begins a sweep when it is imported: put that under if __name__ == '__main__'"
        )
    spec = SweepSpec(
        name=name or "sweep",
        space=space,
        goals=parse_goals(goals),
        constraints=parse_constraints(constraints),
        budget=read_budget(budget, trials),
        suggester=suggester,
        stopper=stopper,
        workers=workers,
        resources=_resources(resources),
        seed=seed,
        beliefs=check_prior(beliefs or {}, space, suggester),
        metrics=tuple(metrics),
    )
    check(spec, dispatcher, objective)
    ledger = Ledger.open(store or ".automl", create=True)
    try:
        spec = _enlist(ledger, spec, fixed_name=name is not None, resume=resume)
        if transfer is not None and not ledger.trials(spec.name):
            spec, resume = _transferred(ledger, spec, transfer), True
        from .report.progress import progress as shown

        with shown(progress) as show:
            where: dict[str, Any] = {"dispatcher": dispatcher, "on_change": show, "resume": resume}
            return Result(
                run(spec, ledger=ledger, objective=objective, **where), store or ".automl"
            )
    finally:
        ledger.close()


def _transferred(ledger: Ledger, spec: SweepSpec, earlier: str) -> SweepSpec:
    """The spec with what an earlier sweep has learned; a sweep that cannot begin as asked is none."""
    try:
        return begin_with(ledger, spec.name, earlier)
    except UsageError:
        ledger.delete(spec.name)
        raise


def load(name: str, store: str | None = None) -> Result:
    """The result of an earlier sweep, or of one that runs elsewhere, as it is now.

    Args:
        name: of the sweep; store: folder or database URL, `.automl` where it is None.

    Raises:
        UsageError: there is no sweep of that name. StoreError: there is no such store, or it is damaged.
    """
    ledger = Ledger.open(store or ".automl", readonly=True)
    try:
        return Result(ledger.snapshot(name), store or ".automl")
    finally:
        ledger.close()


def num_slots(spec: SweepSpec) -> int:
    """How many slots the spec asks for, or as many as this machine has room for, at least 1."""
    if spec.workers is not None:
        return spec.workers
    slots = count_cpus() // max(1, spec.resources.cpus)
    if spec.resources.gpus > 0:
        slots = min(slots, int(len(detect().gpus) / spec.resources.gpus))
    return max(1, slots)


def _context(spec: SweepSpec, domain: Domain) -> SearchContext:
    return SearchContext(domain, spec.beliefs, spec.budget)


def _suggestions(spec: SweepSpec, note: Callable[[str], None], *, ahead: bool) -> SuggestionQueue:
    def make(name: str, domain: Domain) -> Suggester:
        context = _context(spec, domain)
        return make_suggester(name, spec.goals, spec.constraints, context, seed=spec.seed)

    gains = spec.budget.gain is not None
    proposer = Proposer(make, spec.suggester, Domain(spec.space), gains=gains)
    if ahead:
        depth = min(4, num_slots(spec))
        return BackgroundSuggestionQueue(proposer, spec.space, depth, note=note)
    return SuggestionQueue(proposer, spec.workers or 1, note=note)


def _stopper(spec: SweepSpec, can_pause: bool) -> Stopper:
    kind = STOPPERS.get(spec.stopper)
    options: dict[str, Any] = {
        "seed": spec.seed,
        "space": spec.space,
        "max_steps": spec.max_steps,
        "can_pause": can_pause,
    }
    if kind.proposes and SUGGESTERS.get(spec.suggester).guides_stopper:
        options["context"] = _context(spec, Domain(spec.space))
    return kind(spec.goals, spec.constraints, **options)


def _measured(
    sweep: str, on_change: Callable[[Snapshot], None] | None
) -> Callable[[Snapshot], None]:
    """`on_change`, and Ray's metrics from when Ray is there."""
    metrics: list[Callable[[Snapshot], None]] = []

    def watch(snapshot: Snapshot) -> None:
        if not metrics and snapshot.num_slots:
            from .integrations.ray_metrics import RayMetrics

            metrics.append(RayMetrics(sweep))
        for each in (*metrics, *([on_change] if on_change else [])):
            each(snapshot)

    return watch


def _dispatcher(
    kind: type[Dispatcher], spec: SweepSpec, objective: Objective | None, ray_address: str | None
) -> Dispatcher:
    from .dispatch.inline import InlineDispatcher

    if kind is InlineDispatcher:
        return InlineDispatcher(num_slots(spec), objective)
    from .dispatch.ray.dispatcher import RayDispatcher

    slots = spec.workers if ray_address else num_slots(spec)
    return RayDispatcher(
        spec.name,
        slots,
        spec.resources,
        objective=objective,
        workload=spec.workload,
        address=ray_address,
    )


def _enlist(ledger: Ledger, spec: SweepSpec, *, fixed_name: bool, resume: bool) -> SweepSpec:
    """The spec under the name that its sweep has in the ledger."""
    if resume and spec.name in {info.name for info in ledger.sweeps()}:
        if ledger.spec(spec.name).space.to_dict() != spec.space.to_dict():
            raise UsageError(
                f"sweep {spec.name!r} searches another space: choose another name to begin a new sweep"
            )
        return spec
    return replace(spec, name=ledger.create_sweep(spec, describe(), rename=not fixed_name))


def read_budget(
    budget: Budget | Mapping[str, Any] | str | float | None, trials: int | None
) -> Budget:
    """A budget as people write it; raises UsageError where it is malformed or no end at all."""
    if isinstance(budget, str | int | float):
        budget = Budget(time=parse_duration(budget))
    elif isinstance(budget, Mapping):
        unknown = set(budget) - set(vars(Budget()))
        if unknown:
            raise UsageError(
                f"a budget has trials, time, worker_time, target and gain, got {', '.join(sorted(unknown))}"
            )
        times = {
            key: parse_duration(budget[key])
            for key in ("time", "worker_time")
            if budget.get(key) is not None
        }
        budget = Budget(**{**budget, **times})
    budget = budget or Budget()
    if trials is not None:
        budget = replace(budget, trials=trials)
    if budget.trials is not None and (isinstance(budget.trials, bool) or budget.trials < 1):
        raise UsageError(f"trials must be a whole number of at least 1, got {budget.trials!r}")
    if replace(budget, gain=None) == Budget():
        raise UsageError(
            "a sweep needs an end: give trials=, or budget= with a duration such as '10m'"
        )
    return budget


def _resources(resources: Resources | Mapping[str, Any] | None) -> Resources:
    if isinstance(resources, Resources):
        return resources
    try:
        made = Resources(**(resources or {}))
    except TypeError as error:
        raise UsageError(
            f"resources are cpus, gpus and memory, got {dict(resources or {})!r}"
        ) from error
    if made.cpus < 1 or made.gpus < 0:
        raise UsageError(f"a slot has at least 1 CPU and no negative number of GPUs, got {made}")
    return made
