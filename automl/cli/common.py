"""Options, opening of the store and JSON output that several verbs share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from automl.core import Trial
from automl.core.budget import LIMITS
from automl.core.spec import KEYS
from automl.core.text import goal_value, json_data, printable
from automl.errors import StoreError, UsageError

if TYPE_CHECKING:
    from automl.config import Override
    from automl.core import Snapshot
    from automl.ledger import Ledger

STORE: Final = KEYS["store"].default
F = TypeVar("F", bound=Callable[..., Any])


def _complete_sweep(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    try:
        with opened(ctx.params.get("store") or STORE) as ledger:
            return [info.name for info in ledger.sweeps() if info.name.startswith(incomplete)]
    except StoreError:
        return []


sweep_argument = click.argument("sweep", shell_complete=_complete_sweep)


def newest_sweep(store: str) -> str:
    """The name of the sweep that was created last; raises UsageError if there is none."""
    with opened(store) as ledger:
        found = max(ledger.sweeps(), key=lambda info: info.created, default=None)
    if found is None:
        raise UsageError(f"there is no sweep in {store}: start one with automl sweep")
    return found.name


def sweep_or_newest(command: F) -> F:
    """Argument SWEEP; without it, the newest sweep of the store, which standard error names."""

    @wraps(command)
    def chosen(*args: Any, sweep: str | None, store: str, **options: Any) -> Any:
        if sweep is None:
            sweep = newest_sweep(store)
            if not options.get("as_json"):
                say(f"sweep {sweep}, the newest of {store}", err=True)
        return command(*args, sweep=sweep, store=store, **options)

    argument = click.argument("sweep", required=False, shell_complete=_complete_sweep)
    return cast(F, argument(chosen))


store_option = click.option(
    "--store",
    default=STORE,
    show_default=True,
    metavar="URL",
    help="Folder or database URL of the sweeps.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
trial_option = click.option(
    "--trial", type=int, metavar="N", help="Number of a trial.  [default: the best one]"
)


def _with_function(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """FILE:NAME; the function of a FILE alone is `objective`."""
    return f"{value}:objective" if value and ":" not in value else value


objective_option = click.option(
    "--objective",
    metavar="FILE[:NAME]",
    callback=_with_function,
    help="Function of your own to tune instead of a workload, such as train.py:objective. "
    "Without NAME, it is 'objective'.",
)


def output_option(
    default: str, metavar: str = "DIR", help: str = "A new folder."
) -> Callable[[F], F]:
    """Option `--output`."""
    return click.option("--output", "-o", metavar=metavar, help=f"{help}  [default: {default}]")


# By the name of a flag, its path in a configuration and its key.
FLAGS: Final = {
    key.flag.split()[0][2:]: (path, key)
    for path, key in {**KEYS, **{f"budget.{name}": key for name, key in LIMITS.items()}}.items()
    if key.flag
}


def setting_options(*names: str) -> Callable[[F], F]:
    """The options of settings; their values are texts, as in `KEY=VALUE`."""

    def add(command: F) -> F:
        for name in reversed(names):
            _, key = FLAGS[name]
            default = f"  [default: {key.default}]" if isinstance(key.default, str) else ""
            flag, metavar = key.flag.split()
            text = key.help + (default if key.default else "")
            command = click.option(flag, metavar=metavar, help=text)(command)
        return command

    return add


def given_settings(options: Mapping[str, Any]) -> list[Override]:
    """The overrides of a configuration that the flags of settings stand for."""
    from automl.config import Override

    named = ((name, path) for name, (path, _) in FLAGS.items() if options.get(name) is not None)
    return [Override(path, options[name], f"--{name}") for name, path in named]


def given_limits(trials: str | None, budget: str | None) -> dict[str, Any]:
    """The limits that `--trials` and `--budget` name, as fields of `Budget`."""
    number = int(trials) if trials and trials.isascii() and trials.isdigit() else trials
    given = {"trials": ("--trials", number), "time": ("--budget", budget)}
    return {
        name: LIMITS[name].read(flag, value)
        for name, (flag, value) in given.items()
        if value is not None
    }


budget_options = setting_options("trials", "budget")
artifacts_option = setting_options("artifacts")


def ray_options(command: F) -> F:
    """Options `--dispatcher` and `--ray-address`."""
    address = click.option(
        "--ray-address", metavar="ADDR", help="Ray cluster to use, 'auto' to find it."
    )
    dispatcher = click.option(
        "--dispatcher",
        type=click.Choice(["auto", "ray", "local", "inline", "agents"]),
        default="ray",
        show_default=True,
        help="Run trials on Ray, in processes of this machine, in this process for debugging, or "
        "only by agents elsewhere (`automl ask`).",
    )
    return address(dispatcher(command))


def opened(store: str, *, write: bool = False) -> closing[Ledger]:
    """Open a store that exists; leaving the context closes it."""
    from automl.ledger import Ledger
    from automl.ledger.database import refuse_password

    refuse_password(store)
    return closing(Ledger.open(store, readonly=not write))


def say(words: str, *, err: bool = False) -> None:
    """Print text, with control characters escaped."""
    click.echo(printable(words, keep="\n\t"), err=err)


def emit(data: Any) -> None:
    """Print JSON. Numbers that are not finite become the texts "nan", "inf" and "-inf"."""
    say(json.dumps(json_data(data), indent=2, ensure_ascii=False, allow_nan=False))


def trial_object(snapshot: Snapshot, trial: Trial) -> dict[str, Any]:
    """The JSON object of a trial; `value` is what the first goal compares, null if it has none."""
    return {**trial.summary(), "value": goal_value(trial, snapshot)}


def goal_values(snapshot: Snapshot, trial: Trial) -> dict[str, float | None]:
    """Value of a trial for each goal, as trials are ranked (`metrics` are the last report)."""
    return {
        goal.metric: goal_value(trial, snapshot, index) for index, goal in enumerate(snapshot.goals)
    }


def best_object(snapshot: Snapshot, trial: Trial) -> dict[str, Any]:
    """The JSON object of `automl best`."""
    found = {
        **trial_object(snapshot, trial),
        "sweep": snapshot.sweep,
        "goals": [str(goal) for goal in snapshot.goals],
        "goal_values": goal_values(snapshot, trial),
        "baseline": snapshot.trials[0].summary(),
        "baseline_goal_values": goal_values(snapshot, snapshot.trials[0]),
    }
    if len(snapshot.goals) > 1:
        found["pareto"] = [other.summary() for other in snapshot.pareto]
    return found
