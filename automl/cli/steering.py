"""The verbs that change a sweep or a trial, also while it runs, also by agents, or delete it."""

from typing import Any, Final

import click

from automl.config.overrides import plain_changes, read_setting
from automl.control.beginning import artifacts_of
from automl.core import parse_duration
from automl.errors import FAILURE_KINDS, UsageError
from automl.ledger import Ledger
from automl.workflows import steering

from . import NO_SUCCESS, SHOULD_STOP
from .common import (
    emit,
    json_option,
    newest_argument,
    opened,
    read_by,
    say,
    store_option,
    sweep_argument,
    trial_option,
    whole,
    writes_store,
)

_AGENT: Final = click.option(
    "--agent", metavar="NAME", default="", help="Who runs the trial.  [default: user and host]"
)


def _metrics(words: tuple[str, ...]) -> dict[str, float] | float:
    """The metrics that `METRIC=VALUE` words name, or a single number.

    Raises UsageError if a word is malformed.
    """
    try:
        if len(words) == 1 and "=" not in words[0]:
            return float(words[0])
        found = {name: float(value) for name, value in (text.split("=", 1) for text in words)}
    except ValueError as error:
        given = " ".join(words)
        rule = "a metric is METRIC=NUMBER, such as loss=0.12"
        raise UsageError(f"{rule}, got {given!r}") from error
    if "" in found or len(found) < len(words):
        raise UsageError(f"each metric has a name and is given once, got {' '.join(words)!r}")
    return found


@click.command()
@sweep_argument
@click.option(
    "--lease",
    metavar="TIME",
    callback=read_by(parse_duration),
    help="Give the trial back after this time without a report, such as 90s or 2h.  "
    "[default: the sweep's timeout, else 60s]",
)
@_AGENT
@writes_store
@json_option
def ask(ledger: Ledger, sweep: str, lease: float | None, agent: str, as_json: bool) -> int | None:
    """Get a trial of a sweep and run it in a program of your own, in any language, anywhere.

    A running sweep answers within a second; without one, this command suggests the trial itself.
    Report steps and the end of the trial with `automl tell`. If nothing comes before the lease is
    over, the trial is tried again.

    \b
    Examples:
      automl sweep mine.yaml --create
      automl ask mine --json
      automl ask mine --lease 2h --json | jq .params

    Exit status: 3 if the sweep has no more trials to give.
    """
    answer = steering.ask(ledger, sweep, lease=lease, agent=agent)
    if as_json:
        emit(answer)
    if answer["trial"] is None:
        say(f"{sweep} gives no more trials: {answer['reason']}", err=True)
        return NO_SUCCESS
    if not as_json:
        params = "  ".join(f"{name}={value}" for name, value in answer["params"].items())
        say(f"trial {answer['trial']}, attempt {answer['attempt']}: {params}")
    return None


@click.command()
@sweep_argument
@click.argument("trial", type=whole(0))
@click.argument("metrics", metavar="[METRIC=VALUE]...", nargs=-1, callback=read_by(_metrics))
@click.option("--step", type=int, metavar="S", help="Report the metrics at this step.")
@click.option(
    "--failed",
    type=click.Choice(tuple(FAILURE_KINDS)),
    metavar="KIND",
    help="The trial failed. If it was preempted, it is tried again; the suggester learns from the "
    "others.",
)
@click.option("--message", metavar="TEXT", default="", help="Describes the failure to a person.")
@click.option(
    "--attempt",
    type=whole(1),
    metavar="A",
    help="Attempt that `automl ask` has printed; refused if another one runs.",
)
@_AGENT
@writes_store
@json_option
def tell(
    ledger: Ledger, sweep: str, trial: int, metrics: Any, as_json: bool, **given: Any
) -> int | None:
    """End a trial that `automl ask` has given: by its metrics, or by a failure.

    With --step, the trial goes on: the metrics are a report, which renews its lease. The metrics of
    a result are added to the reported ones. You may send the same result twice. A different one, or
    one after the lease, is refused.

    \b
    Examples:
      automl tell mine 3 --step 100 loss=0.5 || automl tell mine 3
      automl tell mine 3 --attempt 1 loss=0.12 seconds=81.5
      automl tell mine 3 --failed out_of_memory --message "asked for 12 GB"

    Exit status: 10 if a trial that has reported should stop; then save a checkpoint if you can, and
    tell.
    """
    if given["step"] is not None and metrics == {}:
        raise UsageError("a report needs a metric, such as loss=0.12")
    answer = steering.tell(ledger, sweep, trial, metrics, **given)
    if as_json:
        emit(answer)
    if "stop" in answer:
        if answer["stop"]:
            say(f"trial {answer['trial']} should stop: {answer['reason']}", err=True)
            return SHOULD_STOP
        return None
    if not as_json:
        failure = f" ({answer['failure']})" if answer["failure"] else ""
        message = f": {answer['message']}" if answer["message"] else ""
        again = "; it was told before" if answer["same"] else ""
        say(f"trial {answer['trial']} is {answer['state']}{failure}{message}{again}")
    return None


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
    with opened(store, write=True) as ledger:
        space = ledger.spec(sweep).space
        given = dict(read_setting(text, space) for text in settings)
        found = steering.enqueue(ledger, sweep, given or None, trial)
    number = found["trial"]
    shown = "  ".join(f"{name}={value}" for name, value in found["params"].items())
    say(f"{sweep} tries next: {shown}" if number is None else f"trial {number} waits: {shown}")


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
    with opened(store, write=True) as ledger:
        say(steering.change(ledger, sweep, plain_changes(settings)))


@click.command()
@sweep_argument
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@writes_store
def delete(ledger: Ledger, sweep: str, yes: bool) -> None:
    """Delete a sweep with its trials, checkpoints and logs. A running sweep is refused.

    Files outside of the store stay: it says where they are.

    \b
    Example:
      automl delete nmt-2
    """
    elsewhere = artifacts_of(ledger.spec(sweep))
    if not yes:
        question = f"delete {sweep} with {len(ledger.trials(sweep))} trials and their files?"
        click.confirm(question, abort=True, err=True)
    ledger.delete(sweep)
    say(f"deleted {sweep}")
    if elsewhere is not None:
        say(f"its files at {elsewhere.location} stay: remove them there", err=True)
