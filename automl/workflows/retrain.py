"""Training configurations of a sweep again: a sweep of its own beside it, whose trials are given, not suggested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from automl.core.budget import Budget
from automl.core.environment import describe
from automl.core.events import Proposed
from automl.core.spec import SweepSpec
from automl.errors import UsageError
from automl.ledger import Ledger
from workers.protocol import Params

ANOTHER_SEED: Final = 7919  # trials of equal number in both sweeps must not share their seed


def companion(sweep: str, kind: str) -> str:
    """Name of the sweep beside another one, such as `nmt.confirm`."""
    return f"{sweep[: 63 - len(kind)]}.{kind}"


def exists(ledger: Ledger, name: str) -> bool:
    """Whether the store has a sweep of that name."""
    return any(info.name == name for info in ledger.sweeps())


def derived(spec: SweepSpec, kind: str, num_trials: int, **changes: Any) -> SweepSpec:
    """The spec of a sweep that trains so many given configurations of another to their full length."""
    budget, seed = Budget(trials=num_trials), (spec.seed + ANOTHER_SEED) % 2**32
    name = companion(spec.name, kind)
    return replace(
        spec, name=name, budget=budget, seed=seed, stopper="none", suggester="sobol", **changes
    )


def enqueue(
    ledger: Ledger, sweep: str, configurations: Sequence[Params], source: str = "enqueued"
) -> None:
    """Add trials that a sweep which is not running will train next.

    Raises:
        SpaceError: a configuration is not legal in the sweep's space; then none is added.
        StoreError: a controller holds the sweep.
    """
    space = ledger.spec(sweep).space
    for params in configurations:
        space.check(params)
    recorder = ledger.acquire(sweep)
    try:
        seconds = ledger.snapshot(sweep).seconds
        for params in configurations:
            recorder.apply(Proposed(len(recorder.trials), dict(params), source, seconds))
        recorder.commit(state="interrupted")
    finally:
        ledger.release(sweep)


def prepare(
    ledger: Ledger, spec: SweepSpec, configurations: Sequence[Mapping[str, Any]]
) -> SweepSpec:
    """A sweep with these trials waiting, made where there is none of that name, else with these as further ones."""
    if not exists(ledger, spec.name):
        ledger.create_sweep(spec, describe(), rename=False)
    elif ledger.spec(spec.name).space != spec.space:
        raise UsageError(
            f"there is a sweep {spec.name!r} that is something else: delete it, or rename this sweep"
        )
    enqueue(ledger, spec.name, configurations)
    total = len(ledger.trials(spec.name))
    return replace(spec, budget=Budget(trials=total))
