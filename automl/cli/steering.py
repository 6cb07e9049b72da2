"""The verbs of people who steer a sweep: stop, pause, enqueue, set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from automl.core.text import Typed

from .common import opened, say

if TYPE_CHECKING:
    from automl.ledger import Ledger


def stop(ledger: Ledger, sweep: str, trial: int | None) -> None:
    """Stop a sweep or a trial."""
    from automl.workflows import steering

    say(steering.stop(ledger, sweep, trial))


def pause(ledger: Ledger, sweep: str, trial: int) -> None:
    """Pause a trial."""
    from automl.workflows import steering

    say(steering.pause(ledger, sweep, trial))


def enqueue(sweep: str, settings: tuple[str, ...], trial: int | None, store: str) -> None:
    """Give the sweep a configuration to try next."""
    from automl.config.limits import read_setting
    from automl.workflows import steering

    with opened(store, write=True) as ledger:
        spec = ledger.spec(sweep)
        given = dict(read_setting(text, spec.space) for text in settings)
        found = steering.enqueue(ledger, sweep, given or None, trial)
    number, limit = found["trial"], spec.budget.trials
    shown = "  ".join(f"{name}={value}" for name, value in found["params"].items())
    say(f"{sweep} tries next: {shown}" if number is None else f"trial {number} waits: {shown}")
    if number is not None and limit is not None and number >= limit:
        command = Typed(store).line(spec, "--trials", str(number + 1))
        say(f"the budget is used up; to run it: {command}", err=True)


def set_(sweep: str, settings: tuple[str, ...], store: str) -> None:
    """Change what may change of a sweep."""
    from automl.config.overrides import plain_changes
    from automl.workflows import steering

    with opened(store, write=True) as ledger:
        say(steering.change(ledger, sweep, plain_changes(settings)))
        spec, state = ledger.spec(sweep), ledger.snapshot(sweep, condensed=True).state
    if state != "running":
        say(f"it holds after: {Typed(store).line(spec)}", err=True)
