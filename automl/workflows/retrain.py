"""Trains configurations of a sweep again, in a second sweep whose trials are given."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from automl.control.beginning import create, with_known_space
from automl.control.journal import writing
from automl.core import Budget, SweepSpec
from automl.core.arguments import companion
from automl.errors import SpaceError, UsageError
from automl.ledger import Ledger
from search_spaces.change import joined
from workers.protocol import Params

ANOTHER_SEED: Final = 7919  # a trial of the same number must get another seed


def derived(spec: SweepSpec, kind: str, num_trials: int, **changes: Any) -> SweepSpec:
    """The spec of a sweep that trains configurations of another one, without early stopping."""
    budget, seed = Budget(trials=num_trials), (spec.seed + ANOTHER_SEED) % 2**32
    name = companion(spec.name, kind)
    return replace(
        spec,
        name=name,
        space=spec.known_space,
        explored=None,
        budget=budget,
        seed=seed,
        stopper="none",
        stopper_options={},
        suggester="sobol",
        suggester_options={},
        **changes,
    )


def enqueue(
    ledger: Ledger, sweep: str, configurations: Sequence[Params], source: str = "enqueued"
) -> None:
    """Add trials to a sweep that is not running. It trains them before any other.

    Raises:
        SpaceError: a configuration is not legal in the sweep's space. Then none is added.
        StoreError: a controller holds the sweep.
    """
    space = ledger.spec(sweep).space
    accepted = [space.accept(params) for params in configurations]
    with writing(ledger, sweep) as writer:
        for params in accepted:
            writer.propose(params, source)


def prepare(
    ledger: Ledger, spec: SweepSpec, configurations: Sequence[Mapping[str, Any]]
) -> SweepSpec:
    """Add these trials to the sweep of the spec, which is created if it does not exist.

    If it exists, it takes the space of the spec and keeps its trials.

    Returns:
        The spec, with a budget for all its trials.

    Raises:
        UsageError: there is a sweep of that name whose trials do not fit the space.
    """
    if ledger.exists(spec.name):
        _change_space(ledger, spec)
    else:
        create(ledger, spec)
    accepted = [spec.space.accept(params, surplus=True) for params in configurations]
    enqueue(ledger, spec.name, accepted)
    total = len(ledger.trials(spec.name))
    return replace(spec, budget=Budget(trials=total))


def _change_space(ledger: Ledger, wanted: SweepSpec) -> None:
    """Give an existing sweep the space of the spec, as a resume does.

    Raises:
        UsageError: its trials do not fit the space. Then it stays as it is.
    """
    name = wanted.name
    stored = ledger.spec(name)
    if stored.space == wanted.space:
        return
    try:
        joined(stored.known_space, wanted.space, [trial.params for trial in ledger.trials(name)])
    except SpaceError as error:
        raise UsageError(
            f"there is another sweep {name!r} with another space: "
            f"delete it with `automl delete {name}`"
        ) from error
    with writing(ledger, name) as writer:
        with_known_space(writer, replace(stored, space=wanted.space))
