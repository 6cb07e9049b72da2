"""`automl enqueue SWEEP KEY=VALUE ...`: give the sweep a configuration to try next."""

import click

from search_spaces import Space
from search_spaces.parameters import Value

from .common import opened, say, store_option, sweep_argument


@click.command("enqueue", short_help="Give the sweep a configuration to try next.")
@sweep_argument
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
@store_option
def command(sweep: str, settings: tuple[str, ...], store: str) -> None:
    """Add a configuration that the sweep trains next: now if it runs, otherwise after a resume.

    A parameter that is not named has its value of the best trial so far, or its default.

    \b
    Example:
      automl enqueue nmt learning_rate=3e-3 width=96
    """
    from automl.workflows.next_trials import try_next

    with opened(store, write=True) as ledger:
        spec = ledger.spec(sweep)
        given = dict(_setting(text, spec.space) for text in settings)
        params, number = try_next(ledger, sweep, given)
    shown = "  ".join(f"{name}={value}" for name, value in params.items())
    if number is None:
        say(f"{sweep} tries next: {shown}")
        return
    say(f"trial {number} waits: {shown}")
    if spec.budget.trials is not None and number >= spec.budget.trials:
        say(
            f"the budget is used up; to run it: automl resume {sweep} --trials {number + 1}",
            err=True,
        )


def _setting(text: str, space: Space) -> tuple[str, Value]:
    from automl.config.limits import read_setting

    return read_setting(text, space)
