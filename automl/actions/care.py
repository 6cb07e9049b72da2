"""The action that deletes a sweep."""

from __future__ import annotations

from typing import Final

from .action import Action, Argument
from .arguments import ARTIFACTS, STORE, SWEEP
from .headings import CARE as HEADING

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
)
