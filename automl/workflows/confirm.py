"""Confirms the best configurations: which of them must be trained again, under other seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from automl.control.beginning import create, with_known_space
from automl.control.outcomes import writing
from automl.core import Budget, PluginChoice, Snapshot, SweepSpec, Trial
from automl.core.arguments import companion
from automl.ledger import Ledger
from automl.report.recommendation import believed, shortlist
from automl.report.record import KIND, Record, candidates, identity
from search_spaces import Space

from .beginning import enqueue

ANOTHER_SEED: Final = 7919  # a trial of the same number must get another seed


def chosen(snapshot: Snapshot, space: Space, count: int) -> list[Trial]:
    """The most promising configurations, at most `count`, the recommended one first.

    The best single trial is one of them, so that it can be seen whether it had luck.
    """
    observed = candidates(snapshot, space, count)
    if not observed:
        return []
    record = Record.of(snapshot)
    found = [observed[0]]
    if (belief := believed(record)) is not None:
        found = shortlist(record, belief)[: count - 1] + found
    unique: dict[object, Trial] = {}
    for trial in [*found, *observed]:
        unique.setdefault(identity(space, trial.params), trial)
    return list(unique.values())[:count]


def missing(ledger: Ledger, sweep: str, chosen: Sequence[Trial], seeds: int) -> list[Trial]:
    """The runs that are missing until each chosen configuration has `seeds` runs, seed by seed."""
    name, space = companion(sweep, KIND), ledger.spec(sweep).known_space
    counts = {identity(space, trial.params): 0 for trial in chosen}
    for done in ledger.trials(name) if ledger.exists(name) else []:
        if (key := identity(space, done.params)) in counts:
            counts[key] += 1
    rounds = range(max(seeds - min(counts.values(), default=0), 0))
    return [t for i in rounds for t in chosen if counts[identity(space, t.params)] + i < seeds]


def derived(spec: SweepSpec, kind: str, num_trials: int, **changes: Any) -> SweepSpec:
    """The spec of a sweep that trains configurations of another one, without early stopping."""
    budget, seed = Budget(trials=num_trials), (spec.seed + ANOTHER_SEED) % 2**32
    name = companion(spec.name, kind)
    return replace(
        spec,
        name=name,
        space=spec.known_space,
        history=replace(spec.history, explored=None),
        budget=budget,
        seed=seed,
        stopper=PluginChoice("none"),
        suggester=PluginChoice("sobol"),
        **changes,
    )


def prepare(
    ledger: Ledger, spec: SweepSpec, configurations: Sequence[Mapping[str, Any]]
) -> SweepSpec:
    """Add these trials to the sweep of the spec, which is created if it does not exist.

    If it exists, it takes the space of the spec, as a resume does, and keeps its trials.

    Returns:
        The spec, with a budget for all its trials.

    Raises:
        UsageError: there is a sweep of that name whose trials do not fit the space.
    """
    if not ledger.exists(spec.name):
        create(ledger, spec)
    elif ledger.spec(spec.name).space != spec.space:
        with writing(ledger, spec.name) as writer:
            with_known_space(writer, replace(writer.spec, space=spec.space))
    enqueue(
        ledger,
        spec.name,
        [spec.space.accept(params, surplus=True) for params in configurations],
    )
    return replace(spec, budget=Budget(trials=len(ledger.trials(spec.name))))
