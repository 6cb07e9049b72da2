"""What people want of the next suggestions: limits on parameters, configurations to try."""

from collections.abc import Iterable, Mapping
from typing import Any

from automl.config.limits import known_parameter
from automl.control.writer import writing
from automl.core import Command
from automl.errors import UsageError
from automl.ledger import Ledger
from automl.ledger.store_errors import HeldError
from automl.suggesters.domain import Domain, Limit, updated_limits
from workers.protocol import Params

from .requests import whoami


def limits_of(ledger: Ledger, sweep: str) -> dict[str, Limit]:
    """The limits that hold now, by parameter."""
    return updated_limits([ledger.state(sweep).limits])


def pin(
    ledger: Ledger,
    sweep: str,
    limits: Mapping[str, Limit],
    release: Iterable[str] = (),
    by: str = "",
) -> dict[str, Limit]:
    """Fix or narrow parameters, or give them their whole range again, from the next suggestion on.

    Args:
        limits: of each parameter to pin or narrow.
        release: parameters whose limit is removed.
        by: who wants it; "" for the user and host of this process.

    Returns:
        The limits that hold now.

    Raises:
        UsageError: a parameter has no limit to remove, or no configuration is left.
    """
    spec, snapshot, before = ledger.spec(sweep), ledger.snapshot(sweep), limits_of(ledger, sweep)
    for name in release:
        if name not in before:
            raise UsageError(f"{name} is not pinned or narrowed in {sweep}")
    content: dict[str, Any] = {name: limit.to_dict() for name, limit in limits.items()}
    content = {**dict.fromkeys(release), **content}
    if not content:
        return before
    after = updated_limits([content], before)
    Domain.of(spec).within(after)  # raises if no configuration is left
    ledger.send(sweep, Command("limits", content, at=snapshot.seconds, by=by or whoami()))
    return after


def try_next(
    ledger: Ledger, sweep: str, settings: Params, by: str = ""
) -> tuple[Params, int | None]:
    """Give the sweep a configuration to try next: now if it runs, otherwise after a resume.

    Args:
        settings: values by parameter; one that is not named has its value of the best trial so
            far, or its default.
        by: who wants it; "" for the user and host of this process.

    Returns:
        The whole configuration, and the number of the trial that waits; None if the sweep runs.

    Raises:
        SpaceError: a value or the configuration is not legal.
        UsageError: the sweep tunes no such parameter.
    """
    spec, snapshot = ledger.spec(sweep), ledger.snapshot(sweep)
    given = {}
    for name, value in settings.items():
        parameter = known_parameter(spec.space, name)
        parameter.check(value)
        given[name] = parameter.canonical(value)
    known, best = spec.space.parameters, dict(snapshot.best.params) if snapshot.best else {}
    best = {n: value for n, value in best.items() if n in known and known[n].legal(value)}
    params = spec.space.complete({**best, **given})
    spec.space.check(params)
    command = Command("enqueue", params, at=snapshot.seconds, by=by or whoami())
    (identity,) = ledger.send(sweep, command)
    if snapshot.state == "running":
        return params, None
    try:
        with writing(ledger, sweep) as writer:
            if identity not in writer.state.requests:
                return params, None
            return params, writer.propose(params, "enqueued", identity).number
    except HeldError:  # a controller has begun meanwhile, and obeys
        return params, None
