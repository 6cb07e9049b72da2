"""What several verbs share: options, opening a store, JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from automl.core.trial import Trial
from automl.errors import StoreError

if TYPE_CHECKING:
    from automl.core.snapshot import Snapshot
    from automl.ledger import Ledger

STORE = ".automl"
F = TypeVar("F", bound=Callable[..., Any])


def sweep_argument(command: F) -> F:
    """The name of a sweep."""
    return click.argument("sweep", shell_complete=_complete_sweep)(command)


def store_option(command: F) -> F:
    """Where the sweeps are."""
    text = "Folder or database URL of the sweeps."
    return click.option("--store", default=STORE, show_default=True, metavar="URL", help=text)(
        command
    )


def json_option(command: F) -> F:
    """Whether a program reads the output."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")(
        command
    )


@contextmanager
def opened(store: str, *, write: bool = False) -> Iterator[Ledger]:
    """The store, which must exist."""
    from automl.ledger import Ledger

    refuse_password(store)
    ledger = Ledger.open(store, readonly=not write)
    try:
        yield ledger
    finally:
        ledger.close()


def refuse_password(store: str) -> None:
    """Raise StoreError where a URL holds a password: it would show in `ps` and in the shell's history."""
    if "://" not in store:
        return
    from sqlalchemy.exc import ArgumentError

    from automl.ledger.database import has_password

    try:
        found = has_password(store)
    except (ArgumentError, ValueError) as error:
        raise StoreError(
            "the store must be a folder or a database URL such as postgresql://host/name"
        ) from error
    if found:
        raise StoreError(
            "a store's URL must not hold a password, which everybody on this machine could read: "
            "put it into the environment variable PGPASSWORD or into ~/.pgpass"
        )


def emit(data: Any) -> None:
    """Print JSON; numbers that are not finite become the texts "nan", "inf" and "-inf", as JSON has none."""
    click.echo(json.dumps(_finite(data), indent=2, ensure_ascii=False, allow_nan=False))


def goal_values(snapshot: Snapshot, trial: Trial) -> dict[str, float | None]:
    """What a trial is worth for each goal: its best report, where `metrics` hold the last one."""
    from automl.core.text import goal_value

    return {
        goal.metric: goal_value(trial, snapshot, index) for index, goal in enumerate(snapshot.goals)
    }


def trial_object(trial: Trial) -> dict[str, Any]:
    """A trial as `automl trials --json` prints it."""
    return trial.summary()


def best_object(snapshot: Snapshot, trial: Trial) -> dict[str, Any]:
    """What `automl best --json` prints."""
    found = {
        **trial_object(trial),
        "sweep": snapshot.sweep,
        "goals": [str(goal) for goal in snapshot.goals],
        "goal_values": goal_values(snapshot, trial),
        "baseline": trial_object(snapshot.trials[0]),
        "baseline_goal_values": goal_values(snapshot, snapshot.trials[0]),
    }
    if len(snapshot.goals) > 1:
        found["pareto"] = [trial_object(other) for other in snapshot.pareto]
    return found


def _finite(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return repr(value)
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _complete_sweep(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    try:
        with opened(ctx.params.get("store") or STORE) as ledger:
            return [info.name for info in ledger.sweeps() if info.name.startswith(incomplete)]
    except StoreError:
        return []
