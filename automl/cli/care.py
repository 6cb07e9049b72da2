"""The verb that deletes a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .common import say

if TYPE_CHECKING:
    from automl.ledger import Ledger


def delete(ledger: Ledger, sweep: str, artifacts: str | None, yes: bool) -> None:
    """Delete a sweep with its trials, checkpoints and logs."""
    from automl.workflows.export import location_to_delete

    elsewhere = location_to_delete(ledger.spec(sweep), artifacts)
    if not yes:
        question = f"delete {sweep} with {len(ledger.trials(sweep))} trials and their files?"
        click.confirm(question, abort=True, err=True)
    ledger.delete(sweep)
    if elsewhere is not None and artifacts is not None:
        elsewhere.remove()
    say(f"deleted {sweep}")
    if elsewhere is not None and artifacts is None:
        say(f"its files at {elsewhere.location} stay: remove them there", err=True)
