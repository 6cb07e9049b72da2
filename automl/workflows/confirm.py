"""Confirms the best configurations: which of them must be trained again, under other seeds."""

from collections.abc import Sequence

from automl.core import Trial
from automl.core.names import companion
from automl.ledger import Ledger
from automl.report.confirmations import KIND, identity


def missing(ledger: Ledger, sweep: str, chosen: Sequence[Trial], seeds: int) -> list[Trial]:
    """The runs that are missing until each chosen configuration has `seeds` runs, seed by seed."""
    name, space = companion(sweep, KIND), ledger.spec(sweep).known_space
    counts = {identity(space, trial.params): 0 for trial in chosen}
    for done in ledger.trials(name) if ledger.exists(name) else []:
        if (key := identity(space, done.params)) in counts:
            counts[key] += 1
    rounds = range(max(seeds - min(counts.values(), default=0), 0))
    return [t for i in rounds for t in chosen if counts[identity(space, t.params)] + i < seeds]
