"""Actions that care for a store."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from .action import Action, Argument
from .arguments import ARTIFACTS, JSON, STORE, SWEEP
from .headings import CARE as HEADING

_PLACE: Final = replace(STORE, flag="", metavar="[STORE]")

CARE: Final = (
    Action(
        "delete",
        HEADING,
        "Delete a sweep and its files.",
        """Delete a sweep with its trials, checkpoints and logs. A running sweep is refused.

        Files outside of the store are deleted only if you name their place with --artifacts.""",
        ("automl delete nmt-2", "automl delete nmt-2 --artifacts s3://bucket/sweeps"),
        (
            SWEEP,
            STORE,
            ARTIFACTS,
            Argument("yes", bool, "Do not ask for confirmation.", "--yes", default=False),
        ),
        "automl.cli.care.delete",
        "write",
    ),
    Action(
        "check",
        HEADING,
        "Verify the checksums of a store and of its backups.",
        """Read every record of a store and verify its checksum; the backups of a file too.

        It ends with status 0 if every checksum holds and with 1 if one does not. Sweeps may be
        running.""",
        ("automl check .automl",),
        (_PLACE, JSON),
        "automl.cli.care.check",
    ),
    Action(
        "backup",
        HEADING,
        "Copy the ledger of a store to a file, also while it is used.",
        """Copy everything that was committed to a SQLite file, and verify the copy.

        Do not use cp for a ledger in use: a part of it is in its log. FILE must not exist. To use a
        copy, put it into a folder of its own as ledger.sqlite3. For a server, use pg_dump.""",
        ("automl backup .automl copy.sqlite3",),
        (
            Argument("store", metavar="STORE", required=True),
            Argument("file", "path", metavar="FILE", required=True),
            JSON,
        ),
        "automl.cli.care.backup",
    ),
    Action(
        "repair",
        HEADING,
        "Keep everything that is sound in a damaged store.",
        """Replace a damaged ledger by one with all sound records of it, its log and its backups.

        What was lost is listed. The damaged files are kept in the folder of the backups. No sweep
        may be running in the store.""",
        ("automl repair .automl",),
        (_PLACE, JSON),
        "automl.cli.care.repair",
    ),
)
