"""The verbs of agents, which run trials elsewhere: ask and tell."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click

from automl.core import parse_duration
from automl.errors import FAILURE_KINDS, UsageError

from . import NO_SUCCESS, SHOULD_STOP
from .common import emit, json_option, read_by, say, sweep_argument, whole, writes_store

if TYPE_CHECKING:
    from automl.ledger import Ledger


_AGENT: Final = click.option(
    "--agent", metavar="NAME", default="", help="Who runs the trial.  [default: user and host]"
)


def _metrics(words: tuple[str, ...]) -> dict[str, float] | float:
    """The metrics that `METRIC=VALUE` words name, or a single number.

    Raises UsageError if a word is malformed.
    """
    found: dict[str, float] = {}
    if len(words) == 1:
        with suppress(ValueError):
            return float(words[0])
    for text in words:
        name, is_setting, value = text.partition("=")
        try:
            number = float(value)
        except ValueError:
            is_setting = ""
        if not (name and is_setting):
            raise UsageError(f"a metric is METRIC=NUMBER, such as loss=0.12, got {text!r}")
        if name in found:
            raise UsageError(f"the metric {name} is given twice")
        found[name] = number
    return found


@click.command(short_help="Get a trial to run elsewhere.")
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
    from automl.workflows import agents

    answer = agents.ask(ledger, sweep, lease=lease, agent=agent)
    if as_json:
        emit(answer)
    if answer["trial"] is None:
        say(f"{sweep} gives no more trials: {answer['reason']}", err=True)
        return NO_SUCCESS
    if not as_json:
        params = "  ".join(f"{name}={value}" for name, value in answer["params"].items())
        say(f"trial {answer['trial']}, attempt {answer['attempt']}: {params}")
        seconds = f"{answer['lease_seconds']:g} s"
        say(f"report or tell within {seconds}, or ask with a longer --lease", err=True)
    return None


@click.command(short_help="Report a step of a trial from `automl ask`, or its result.")
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
    from automl.workflows import agents

    if given["step"] is not None and metrics == {}:
        raise UsageError("a report needs a metric, such as loss=0.12")
    answer = agents.tell(ledger, sweep, trial, metrics, **given)
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
