"""`automl repair STORE`: make a sound ledger of a damaged one."""

import click

from .common import STORE, emit, json_option, say


@click.command("repair", short_help="Keep everything that is sound in a damaged store.")
@click.argument("store", default=STORE)
@json_option
def command(store: str, as_json: bool) -> None:
    """Replace a damaged ledger by one with all sound records of it, its log and its backups.

    What was lost is listed. The damaged files are kept in the folder of the backups. No sweep may
    be running in the store.

    \b
    Example:
      automl repair .automl
    """
    from automl.ledger.database import refuse_password
    from automl.ledger.repair import repair

    refuse_password(store)
    done = repair(store)
    if as_json:
        aside = str(done.aside) if done.aside else None
        emit({"store": store, "damage": done.damage, "lost": done.lost, "aside": aside})
    elif done.aside is None:
        say("\n".join([f"{store}: the ledger is sound", *done.damage]))
    else:
        say("\n".join(done.damage))
        say(f"repaired; the damaged files are in {done.aside}")
        say("\n".join(f"lost: {one}" for one in done.lost) or "nothing was lost")
