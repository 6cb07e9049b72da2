"""`automl fail SWEEP TRIAL KIND`: an agent tells that a trial has failed."""

import click

from .ask import agent_option, attempt_option, trial_argument
from .common import json_option, opened, store_option, sweep_argument
from .tell import show_result


@click.command("fail", short_help="End a trial from `automl ask` with a failure.")
@sweep_argument
@trial_argument
@click.argument("kind")
@click.option("--message", default="", metavar="TEXT", help="Describes the failure to a person.")
@attempt_option
@agent_option
@store_option
@json_option
def command(
    sweep: str,
    trial: int,
    kind: str,
    message: str,
    attempt: int | None,
    agent: str | None,
    store: str,
    as_json: bool,
) -> None:
    """End a trial that `automl ask` has given with a failure, from which the suggester learns.

    KIND is out_of_memory, non_finite, timeout, crashed, missing_metric, or preempted: the machine
    was taken away, and the trial is tried again.

    \b
    Example:
      automl fail mine 3 out_of_memory --message "asked for 12 GB"
    """
    from automl.workflows import agents

    with opened(store, write=True) as ledger:
        answer = agents.fail(
            ledger, sweep, trial, kind, message, attempt=attempt, agent=agent or ""
        )
    show_result(answer, as_json)
