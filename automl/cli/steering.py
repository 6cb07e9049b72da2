"""The verbs that change a sweep or a trial, also while it runs, or delete it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from automl.core.text import Typed

from .common import (
    newest_argument,
    opened,
    say,
    setting,
    store_option,
    sweep_argument,
    trial_option,
    whole,
    writes_store,
)

if TYPE_CHECKING:
    from automl.ledger import Ledger


@click.command()
@newest_argument
@trial_option("Stop only this trial; the sweep goes on.")
@writes_store
def stop(ledger: Ledger, sweep: str, trial: int | None) -> None:
    """Ask a running sweep to stop. Its trials stop at their next report, and their results count.

    To interrupt a sweep and continue it later, press Ctrl-C in its own terminal instead.

    \b
    Examples:
      automl stop nmt
      automl stop nmt --trial 12
    """
    from automl.workflows import steering

    say(steering.stop(ledger, sweep, trial))


@click.command()
@sweep_argument
@click.argument("trial", metavar="N", type=whole(0))
@writes_store
def pause(ledger: Ledger, sweep: str, trial: int) -> None:
    """Pause a trial at its next report. It goes on after `automl resume SWEEP --trial N`.

    Only a trial that goes on from a checkpoint can pause. Ctrl-C pauses the whole sweep.

    \b
    Example:
      automl pause nmt 12
    """
    from automl.workflows import steering

    say(steering.pause(ledger, sweep, trial))


@click.command()
@sweep_argument
@click.argument("settings", metavar="[KEY=VALUE]...", nargs=-1)
@trial_option("Try the configuration of this finished trial again, as a new trial.")
@store_option
def enqueue(sweep: str, settings: tuple[str, ...], trial: int | None, store: str) -> None:
    """Add a configuration that the sweep trains next: now if it runs, otherwise after a resume.

    A parameter that is not named has its value of the best trial so far, or its default.

    \b
    Examples:
      automl enqueue nmt learning_rate=3e-3 width=96
      automl enqueue nmt --trial 12
    """
    from automl.config.limits import read_setting
    from automl.workflows import steering

    with opened(store, write=True) as ledger:
        spec = ledger.spec(sweep)
        given = dict(read_setting(text, spec.space) for text in settings)
        found = steering.enqueue(ledger, sweep, given or None, trial)
    number, limit = found["trial"], spec.budget.trials
    shown = "  ".join(f"{name}={value}" for name, value in found["params"].items())
    say(f"{sweep} tries next: {shown}" if number is None else f"trial {number} waits: {shown}")
    if number is not None and limit is not None and number >= limit:
        command = Typed(store).line(spec, "--trials", str(number + 1))
        say(f"the budget is used up; to run it: {command}", err=True)


@click.command("set")
@sweep_argument
@click.argument("settings", metavar="KEY=VALUE...", nargs=-1, required=True)
@store_option
def set_(sweep: str, settings: tuple[str, ...], store: str) -> None:
    """Change a sweep: its budget, its number of workers, or what is tried of a parameter.

    A running sweep follows at once, another one after a resume. `null` removes a limit of the
    budget. A parameter takes a value, [LOW, HIGH] or a list of choices within its space, from the
    next suggestion on; `auto` is its whole range again. Earlier trials still count. The workers of
    a running sweep change only on Ray; those that are too many end after their trials.

    \b
    Examples:
      automl set nmt budget.trials=60 budget.time=3h
      automl set nmt workers=8
      automl set nmt 'workers={min: 2, max: 64}'
      automl set nmt space.precision=fp32 space.learning_rate=[1e-4,1e-3]
      automl set nmt space.attention_layout=[packed,separate] space.width=auto
    """
    from automl.config.overrides import plain_changes
    from automl.workflows import steering

    with opened(store, write=True) as ledger:
        say(steering.change(ledger, sweep, plain_changes(settings)))
        spec, state = ledger.spec(sweep), ledger.snapshot(sweep).state
    if state != "running":
        say(f"it holds after: {Typed(store).line(spec)}", err=True)


@click.command()
@sweep_argument
@setting("artifacts")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@writes_store
def delete(ledger: Ledger, sweep: str, artifacts: str | None, yes: bool) -> None:
    """Delete a sweep with its trials, checkpoints and logs. A running sweep is refused.

    Files outside of the store are deleted only if you name their place with --artifacts.

    \b
    Examples:
      automl delete nmt-2
      automl delete nmt-2 --artifacts s3://bucket/sweeps
    """
    from automl.workflows.export import location_to_delete

    elsewhere = location_to_delete(ledger.spec(sweep), artifacts)
    if not yes:
        question = f"delete {sweep} with {len(ledger.trials(sweep))} trials and their files?"
        click.confirm(question, abort=True, err=True)
    ledger.delete(sweep)
    if elsewhere is not None and artifacts is not None:
        elsewhere.remove()
    say(f"deleted {sweep}")
    if elsewhere is not None and artifacts is None:
        say(f"its files at {elsewhere.location} stay: remove them there", err=True)
