"""The verbs of people whose words depend on the space of the sweep, and how marks are printed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from automl.core.resuming import Typed

from .common import emit, opened, say

if TYPE_CHECKING:
    from automl.ledger import Ledger


def pin(
    sweep: str, settings: tuple[str, ...], release: tuple[str, ...], store: str, as_json: bool
) -> None:
    """Fix or narrow parameters, or show the present limits."""
    from automl.config.limits import read_limit
    from automl.workflows.next_trials import pin

    with opened(store, write=bool(settings or release)) as ledger:
        spec, snapshot = ledger.spec(sweep), ledger.snapshot(sweep)
        given = dict(read_limit(text, spec.space) for text in settings)
        limits = pin(ledger, sweep, given, release)
    if as_json:
        shown = {name: limit.to_dict() for name, limit in limits.items()}
        return emit({"sweep": sweep, "limits": shown})
    if not limits:
        return say(f"nothing is pinned or narrowed in {sweep}")
    say("\n".join(f"{name}: {limit}" for name, limit in limits.items()))
    if snapshot.state != "running":
        say(f"the limits hold after: {Typed(store).line(spec)}", err=True)
    return None


def enqueue(sweep: str, settings: tuple[str, ...], store: str) -> None:
    """Give the sweep a configuration to try next."""
    from automl.config.limits import read_setting
    from automl.workflows.next_trials import try_next

    with opened(store, write=True) as ledger:
        spec = ledger.spec(sweep)
        given = dict(read_setting(text, spec.space) for text in settings)
        params, number = try_next(ledger, sweep, given)
    shown = "  ".join(f"{name}={value}" for name, value in params.items())
    say(f"{sweep} tries next: {shown}" if number is None else f"trial {number} waits: {shown}")
    limit = spec.budget.trials
    if number is not None and limit is not None and number >= limit:
        command = Typed(store).line(spec, "--trials", str(number + 1))
        say(f"the budget is used up; to run it: {command}", err=True)


def scale(ledger: Ledger, sweep: str, workers: int, least: int | None) -> None:
    """Change the number of workers."""
    from automl.workflows import steering

    say(steering.scale(ledger, sweep, workers, least))


def show_marks(sweep: str, marks: Mapping[str, Any], as_json: bool) -> None:
    """Print a star, tags and a note."""
    if as_json:
        return emit(marks)
    words = [word for word in ("star", "archived") if marks[word]]
    words = [word.replace("star", "starred") for word in words]
    words += [f"tag {tag}" for tag in marks["tags"]]
    words += [f"note: {marks['note']}"] if marks["note"] else []
    return say("; ".join(words) or "no marks")
