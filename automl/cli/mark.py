"""`automl mark SWEEP`: star, tag or annotate a sweep or a trial."""

from collections.abc import Mapping
from typing import Any

import click

from .common import emit, json_option, opened, say, store_option, sweep_argument


@click.command("mark", short_help="Star, tag or annotate a sweep or a trial.")
@sweep_argument
@click.option(
    "--trial",
    type=click.IntRange(min=0),
    metavar="N",
    help="Number of a trial.  [default: the sweep itself]",
)
@click.option("--star/--no-star", default=None, help="Give or take a star.")
@click.option("--tag", "tags", multiple=True, metavar="WORD", help="Add a tag; may be repeated.")
@click.option("--untag", "untags", multiple=True, metavar="WORD", help="Remove a tag.")
@click.option("--note", metavar="TEXT", help="Replace the note; '' removes it.")
@click.option(
    "--archive/--no-archive", "archived", default=None, help="Hide the sweep in the studio's list."
)
@store_option
@json_option
def command(
    sweep: str,
    trial: int | None,
    star: bool | None,
    tags: tuple[str, ...],
    untags: tuple[str, ...],
    note: str | None,
    archived: bool | None,
    store: str,
    as_json: bool,
) -> None:
    """Star, tag or annotate a sweep or a trial, at any time. Without an option, show its marks.

    \b
    Examples:
      automl mark nmt --trial 12 --star --tag baseline --note "best without dropout"
      automl mark nmt --trial 12
    """
    from automl.workflows import steering

    with opened(store, write=True) as ledger:
        found = steering.mark(
            ledger,
            sweep,
            trial,
            star=star,
            add_tags=list(tags),
            remove_tags=list(untags),
            note=note,
            archived=archived,
        )
    emit(found) if as_json else say(_line(found))


def _line(marks: Mapping[str, Any]) -> str:
    words = ["starred"] if marks["star"] else []
    words += ["archived"] if marks["archived"] else []
    words += [f"tag {tag}" for tag in marks["tags"]]
    words += [f"note: {marks['note']}"] if marks["note"] else []
    return "; ".join(words) or "no marks"
