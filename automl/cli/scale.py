"""`automl scale SWEEP N`: change the number of workers, also while the sweep runs."""

import click

from .common import opened, say, store_option, sweep_argument


@click.command("scale", short_help="Change the number of workers, also while a sweep runs.")
@sweep_argument
@click.argument("workers", type=click.IntRange(min=1), metavar="N")
@click.option(
    "--min",
    "least",
    type=click.IntRange(min=1),
    metavar="M",
    help="Keep at least M workers, and up to N while trials wait.",
)
@store_option
def command(sweep: str, workers: int, least: int | None, store: str) -> None:
    """Change the number of workers, also while a sweep runs on a Ray cluster.

    More workers begin as soon as the cluster has room for them. If there are too many, idle ones
    end at once, and the others after their trials. An interrupted
    sweep has this number when it is resumed.

    \b
    Examples:
      automl scale nmt 8
      automl scale nmt 64 --min 2
    """
    from automl.workflows import steering

    with opened(store, write=True) as ledger:
        say(steering.scale(ledger, sweep, workers, least))
