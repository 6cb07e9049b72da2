"""`automl report-step SWEEP TRIAL STEP METRIC=VALUE ...`: an agent reports a step of a trial."""

import click

from .ask import agent_option, attempt_option, trial_argument
from .common import emit, json_option, opened, say, store_option, sweep_argument
from .tell import metrics_of

SHOULD_STOP = 10  # exit status


@click.command("report-step", short_help="Report a step of a trial from `automl ask`.")
@sweep_argument
@trial_argument
@click.argument("step", type=int)
@click.argument("settings", nargs=-1, metavar="METRIC=VALUE...")
@attempt_option
@agent_option
@store_option
@json_option
def command(
    sweep: str,
    trial: int,
    step: int,
    settings: tuple[str, ...],
    attempt: int | None,
    agent: str | None,
    store: str,
    as_json: bool,
) -> None:
    """Report metrics of a trial that `automl ask` has given, and renew its lease.

    \b
    Example:
      automl report-step mine 3 100 loss=0.5 || automl tell mine 3

    Exit status: 10 if the trial should stop; then save a checkpoint if you can, and tell.
    """
    from automl.workflows import agents

    metrics = metrics_of(settings)
    with opened(store, write=True) as ledger:
        answer = agents.report_step(
            ledger, sweep, trial, step, metrics, attempt=attempt, agent=agent or ""
        )
    if as_json:
        emit(answer)
    if answer["stop"]:
        say(f"trial {trial} should stop: {answer['reason']}", err=True)
        click.get_current_context().exit(SHOULD_STOP)
