"""Options that all systems share, and the check of the configuration before a job is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from automl.errors import UsageError

from ..common import (
    STORE,
    given_settings,
    json_option,
    objective_option,
    say,
    setting_options,
)
from ..program import Program, shell_option

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: Final = (
    click.argument("config", type=click.Path()),
    click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]..."),
    click.option(
        "--name", metavar="NAME", help="Name of the sweep.  [default: the configuration's]"
    ),
    setting_options("trials", "budget", "seed"),
    click.option(
        "--store",
        metavar="URL",
        help="Folder or database URL of the sweeps; the job must see it.  [default: .automl]",
    ),
    objective_option,
    shell_option,
    click.option("--dry-run", is_flag=True, help="Print the job and submit nothing."),
    json_option,
)


def sweep_options(command: F) -> F:
    """The configuration, its overrides and the options of `automl sweep` that a job passes on."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def checked_sweep(
    config: str,
    overrides: tuple[str, ...],
    program: Program | None,
    options: dict[str, Any],
) -> Any:
    """The command of the sweep, after the checks of `automl sweep --dry-run`.

    Raises:
        UsageError: the configuration, an override, or the store is wrong.
    """
    from automl.config import load
    from automl.launch.sweep_command import SweepCommand
    from automl.ledger.database import refuse_password

    loaded = load(
        config,
        [*overrides, *given_settings(options)],
        objective=options["objective"] is not None,
        command="" if program is None else str(program),
    )
    refuse_password(loaded.store)
    for note in loaded.notes:
        say(note, err=True)
    names = ("trials", "budget", "seed", "objective")
    passed = {key: options[key] for key in names if options[key] is not None}
    behind: tuple[str, ...] = ()
    if program is not None:
        behind = ("--", *program.arguments)
        if program.shell:
            behind = ("--shell", *behind)
    return SweepCommand(config, loaded.spec.name, loaded.store, overrides, passed, behind)


def tell_if_it_goes_on(name: str, store: str) -> None:
    """Say that the job goes on with a sweep, if the store is here and has it."""
    from automl.control.preflight import existing_sweeps

    try:
        known = name in existing_sweeps(store)
    except UsageError:
        return  # the job may reach a store that this machine does not
    if known:
        place = "" if store == STORE else f" of {store}"
        say(f"the job goes on with the sweep {name}{place}; for another one, give --name", err=True)
