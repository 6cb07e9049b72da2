"""`automl delete SWEEP`: delete a sweep."""

import click

from .common import artifacts_option, opened, say, store_option, sweep_argument


@click.command("delete", short_help="Delete a sweep and its files.")
@sweep_argument
@store_option
@artifacts_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def command(sweep: str, store: str, artifacts: str | None, yes: bool) -> None:
    """Delete a sweep with its trials, checkpoints and logs. A running sweep is refused.

    Files outside of the store are deleted only if you name their place with --artifacts.

    \b
    Examples:
      automl delete nmt-2
      automl delete nmt-2 --artifacts s3://bucket/sweeps
    """
    from automl.workflows.artifacts import location_to_delete

    with opened(store, write=True) as ledger:
        elsewhere = location_to_delete(ledger.spec(sweep), artifacts)
        num_trials = len(ledger.trials(sweep))
        if not yes:
            click.confirm(
                f"delete {sweep} with {num_trials} trials and their files?", abort=True, err=True
            )
        ledger.delete(sweep)
        if elsewhere is not None and artifacts is not None:
            elsewhere.remove()
        say(f"deleted {sweep}")
    if elsewhere is not None and artifacts is None:
        say(f"its files at {elsewhere.location} stay: remove them there", err=True)
