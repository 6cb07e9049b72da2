"""`automl check STORE`: verify the checksums of a store."""

import click

from automl.errors import AutomlError

from .common import STORE, emit, json_option, say


@click.command("check", short_help="Verify the checksums of a store and of its backups.")
@click.argument("store", default=STORE)
@json_option
def command(store: str, as_json: bool) -> None:
    """Read every record of a store and verify its checksum; the backups of a file too.

    It ends with status 0 if every checksum holds and with 1 if one does not. Sweeps may be running.

    \b
    Example:
      automl check .automl
    """
    from automl.ledger.check import check
    from automl.ledger.database import refuse_password, shown

    refuse_password(store)
    damage = check(store)
    name = shown(store) if "://" in store else store
    if as_json:
        emit({"store": name, "sound": not damage, "damage": damage})
    elif not damage:
        say(f"{name}: every checksum holds")
    if damage and not as_json:
        say("\n".join(damage))
    if damage:
        raise AutomlError(f"{name} is damaged: see `automl repair --help`")
