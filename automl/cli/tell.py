"""`automl tell SWEEP TRIAL METRIC=VALUE ...`: an agent tells the result of a trial."""

from collections.abc import Mapping
from typing import Any

import click

from automl.errors import UsageError

from .ask import agent_option, attempt_option, trial_argument
from .common import emit, json_option, opened, say, store_option, sweep_argument


def metrics_of(settings: tuple[str, ...]) -> dict[str, float]:
    """The metrics that `METRIC=VALUE` words name; raises UsageError if one is malformed."""
    found: dict[str, float] = {}
    for text in settings:
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


def show_result(answer: Mapping[str, Any], as_json: bool) -> None:
    """Print what has become of a trial."""
    if as_json:
        emit(answer)
        return
    failure = f" ({answer['failure']})" if answer["failure"] else ""
    message = f": {answer['message']}" if answer["message"] else ""
    again = "; it was told before" if answer["same"] else ""
    say(f"trial {answer['trial']} is {answer['state']}{failure}{message}{again}")


@click.command("tell", short_help="End a trial from `automl ask` with its result.")
@sweep_argument
@trial_argument
@click.argument("settings", nargs=-1, metavar="METRIC=VALUE...")
@attempt_option
@agent_option
@store_option
@json_option
def command(
    sweep: str,
    trial: int,
    settings: tuple[str, ...],
    attempt: int | None,
    agent: str | None,
    store: str,
    as_json: bool,
) -> None:
    """End a trial that `automl ask` has given, with its metrics added to the reported ones.

    You may send the same result twice. A different one, or one after the lease, is refused.

    \b
    Examples:
      automl tell mine 3 loss=0.12
      automl tell mine 3 --attempt 1 loss=0.12 seconds=81.5
    """
    from automl.workflows import agents

    metrics = metrics_of(settings)
    with opened(store, write=True) as ledger:
        answer = agents.tell(ledger, sweep, trial, metrics, attempt=attempt, agent=agent or "")
    show_result(answer, as_json)
