"""Checks that are made before anything is created."""

from __future__ import annotations

import tempfile
from pathlib import Path

from automl.errors import StoreError


def check_store(location: str) -> None:
    """Raise StoreError where a store cannot be opened or made; leaves nothing behind."""
    from automl.ledger import Ledger
    from automl.ledger.database import IN_MEMORY, is_ledger, locate
    from automl.ledger.store_errors import translate_errors

    with translate_errors(location):
        _, file, _ = locate(location)
    if file is None and (location == IN_MEMORY or not is_ledger(location)):
        return  # a server answers; its tables are made with the first sweep
    if file is None or file.exists():
        Ledger.open(location, readonly=True).close()
        return
    folder = next(parent for parent in file.parents if parent.exists())
    if not folder.is_dir():
        raise StoreError(f"the store {location!r} cannot be made: {folder} is not a folder")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise StoreError(
            f"the store {location!r} cannot be made in {folder}: {error.strerror}"
        ) from error


def existing_sweeps(location: str) -> list[str]:
    """Names of the sweeps that a store holds; none where it does not exist yet."""
    from automl.ledger import Ledger
    from automl.ledger.database import is_ledger, locate

    _, file, _ = locate(location)
    if (file is not None and not Path(file).exists()) or (file is None and not is_ledger(location)):
        return []
    ledger = Ledger.open(location, readonly=True)
    try:
        return [info.name for info in ledger.sweeps()]
    finally:
        ledger.close()
