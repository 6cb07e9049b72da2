"""Options, opening of the store and JSON output that several verbs share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from automl.core import Trial
from automl.core.text import goal_value, json_data
from automl.errors import StoreError

if TYPE_CHECKING:
    from automl.core import Snapshot
    from automl.ledger import Ledger

STORE = ".automl"
F = TypeVar("F", bound=Callable[..., Any])


def sweep_argument(command: F) -> F:
    """Argument SWEEP, with shell completion."""
    return click.argument("sweep", shell_complete=_complete_sweep)(command)


def store_option(command: F) -> F:
    """Option `--store`."""
    text = "Folder or database URL of the sweeps."
    return click.option("--store", default=STORE, show_default=True, metavar="URL", help=text)(
        command
    )


def json_option(command: F) -> F:
    """Option `--json`."""
    text = "Print JSON and nothing else."
    return click.option("--json", "as_json", is_flag=True, help=text)(command)


def output_option(
    default: str, metavar: str = "DIR", help: str = "A new folder."
) -> Callable[[F], F]:
    """Option `--output`."""
    text = f"{help}  [default: {default}]"
    return click.option("--output", "-o", metavar=metavar, help=text)


def trial_option(command: F) -> F:
    """Option `--trial`."""
    text = "Number of a trial.  [default: the best one]"
    return click.option("--trial", type=int, metavar="N", help=text)(command)


def budget_options(command: F) -> F:
    """Options `--trials` and `--budget`."""
    text = "End after so much time, including earlier runs, such as 10m or 1h30m."
    time = click.option("--budget", metavar="TIME", help=text)
    text = "End after so many trials, including failed ones and those of earlier runs."
    return click.option("--trials", metavar="N", help=text)(time(command))


def objective_option(command: F) -> F:
    """Option `--objective`."""
    text = "Function of your own to tune instead of a workload, such as train.py:objective."
    return click.option("--objective", metavar="FILE:NAME", help=text)(command)


def ray_options(command: F) -> F:
    """Options `--dispatcher` and `--ray-address`."""
    text = "Ray cluster to use, 'auto' to find it."
    address = click.option("--ray-address", metavar="ADDR", help=text)
    kinds = click.Choice(["ray", "inline"])
    text = "Run trials on Ray workers, or in this process for debugging."
    dispatcher = click.option(
        "--dispatcher", type=kinds, default="ray", show_default=True, help=text
    )
    return address(dispatcher(command))


@contextmanager
def opened(store: str, *, write: bool = False) -> Iterator[Ledger]:
    """Open a store that exists, and close it at the end."""
    from automl.ledger import Ledger
    from automl.ledger.database import refuse_password

    refuse_password(store)
    ledger = Ledger.open(store, readonly=not write)
    try:
        yield ledger
    finally:
        ledger.close()


def emit(data: Any) -> None:
    """Print JSON. Numbers that are not finite become the texts "nan", "inf" and "-inf"."""
    click.echo(json.dumps(json_data(data), indent=2, ensure_ascii=False, allow_nan=False))


def goal_values(snapshot: Snapshot, trial: Trial) -> dict[str, float | None]:
    """Value of a trial for each goal: its best report (`metrics` are the last report)."""
    return {
        goal.metric: goal_value(trial, snapshot, index) for index, goal in enumerate(snapshot.goals)
    }


def best_object(snapshot: Snapshot, trial: Trial) -> dict[str, Any]:
    """The JSON object of `automl best`."""
    found = {
        **trial.summary(),
        "sweep": snapshot.sweep,
        "goals": [str(goal) for goal in snapshot.goals],
        "goal_values": goal_values(snapshot, trial),
        "baseline": snapshot.trials[0].summary(),
        "baseline_goal_values": goal_values(snapshot, snapshot.trials[0]),
    }
    if len(snapshot.goals) > 1:
        found["pareto"] = [other.summary() for other in snapshot.pareto]
    return found


def _complete_sweep(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    try:
        with opened(ctx.params.get("store") or STORE) as ledger:
            return [info.name for info in ledger.sweeps() if info.name.startswith(incomplete)]
    except StoreError:
        return []
