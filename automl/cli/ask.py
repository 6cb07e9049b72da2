"""`automl ask SWEEP`: an agent gets a trial to run."""

import click

from automl.core import parse_duration

from . import NO_SUCCESS
from .common import emit, json_option, opened, say, store_option, sweep_argument

agent_option = click.option(
    "--agent", metavar="NAME", help="Who runs the trial.  [default: user and host]"
)
attempt_option = click.option(
    "--attempt",
    type=click.IntRange(min=1),
    metavar="A",
    help="Attempt that `automl ask` has printed; refused if another one runs.",
)
trial_argument = click.argument("trial", type=click.IntRange(min=0), metavar="TRIAL")


@click.command("ask", short_help="Get a trial to run elsewhere.")
@sweep_argument
@click.option(
    "--lease",
    metavar="TIME",
    help="Give the trial back after this time without a report, such as 90s or 2h.  "
    "[default: the sweep's timeout, else 60s]",
)
@agent_option
@store_option
@json_option
def command(sweep: str, lease: str | None, agent: str | None, store: str, as_json: bool) -> None:
    """Get a trial of a sweep and run it in a program of your own, in any language, anywhere.

    A running sweep answers within a second; without one, this command suggests the trial itself.
    Report steps with `automl report-step`, and end the trial with `automl tell` or `automl fail`.
    If neither comes before the lease is over, the trial is tried again.

    \b
    Examples:
      automl sweep mine.yaml --create
      automl ask mine --json
      automl ask mine --lease 2h --json | jq .params

    Exit status: 3 if the sweep has no more trials to give.
    """
    from automl.workflows import agents

    seconds = None if lease is None else parse_duration(lease)
    with opened(store, write=True) as ledger:
        answer = agents.ask(ledger, sweep, agent=agent or "", lease=seconds)
    if as_json:
        emit(answer)
    if answer["trial"] is None:
        say(f"{sweep} gives no more trials: {answer['reason']}", err=True)
        click.get_current_context().exit(NO_SUCCESS)
    if not as_json:
        shown = "  ".join(f"{name}={value}" for name, value in answer["params"].items())
        say(f"trial {answer['trial']}, attempt {answer['attempt']}: {shown}")
        say(
            f"report or tell within {answer['lease_seconds']:g} s, or ask with a longer --lease",
            err=True,
        )
