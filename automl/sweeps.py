"""The composition root: from a sweep's specification to a controller with everything that it needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .ledger import Ledger
from .snapshot import Snapshot
from .spec import SweepSpec

Objective = Callable[[Any], Any]


def run(
    spec: SweepSpec,
    *,
    ledger: Ledger,
    objective: Objective | None = None,
    dispatcher: str = "ray",
    ray_address: str | None = None,
    on_change: Callable[[Snapshot], None] | None = None,
    resume: bool = False,
) -> Snapshot:
    """Run a sweep that `ledger.create_sweep` has made, until its budget is reached, and return how it stands.

    Args:
        spec: its name is that of the sweep in the ledger (as `create_sweep` returned it).
        objective: what a trial runs; None for the spec's workload.
        dispatcher: "ray", or "inline" for this process.
        ray_address: of a running Ray cluster, "auto" to find it; None starts one of our own.
        on_change: called from this thread with the sweep at each event and at least every 0.5 s.
        resume: the sweep has run before; unfinished trials are taken up again.

    Returns:
        Its state is "finished", or "interrupted" after Ctrl-C or SIGTERM (nothing is raised then: exit status 130).

    Raises:
        UsageError: something in the spec is unknown here, or Ray cannot be reached.
        StoreError: another controller holds the sweep, or the store cannot be written to.
        AutomlError: the sweep cannot go on, such as when every suggester fails.
    """
    raise NotImplementedError("the controller lands next")
