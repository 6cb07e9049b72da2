"""Confirms the best configurations: which of them must be trained again, under other seeds."""

from collections.abc import Sequence

from automl.core import Snapshot, Trial
from automl.core.arguments import companion
from automl.ledger import Ledger
from automl.report.confirmations import KIND, Confirmation, candidates, identity
from automl.report.recommendation import believed, shortlist
from automl.report.record import Record
from search_spaces import Space


def chosen(snapshot: Snapshot, space: Space, count: int) -> list[Trial]:
    """The most promising configurations, at most `count`, the recommended one first.

    The best single trial is one of them, so that it can be seen whether it had luck.
    """
    observed = candidates(snapshot, space, count)
    if not observed:
        return []
    record = Record.of(snapshot)
    found = [observed[0]]
    if (belief := believed(record)) is not None:
        found = shortlist(record, belief)[: count - 1] + found
    unique: dict[object, Trial] = {}
    for trial in [*found, *observed]:
        unique.setdefault(identity(space, trial.params), trial)
    return list(unique.values())[:count]


def next_runs(confirmation: Confirmation, configurations: Sequence[Trial]) -> list[Trial]:
    """One more run of the leader and of the configuration that is most likely to be better."""
    doubts = confirmation.doubts()
    rival = max(doubts, key=lambda number: doubts[number])
    numbers = {confirmation.leader.trial, rival}
    return [trial for trial in configurations if trial.number in numbers]


def missing(ledger: Ledger, sweep: str, chosen: Sequence[Trial], seeds: int) -> list[Trial]:
    """The runs that are missing until each chosen configuration has `seeds` runs, seed by seed."""
    name, space = companion(sweep, KIND), ledger.spec(sweep).known_space
    counts = {identity(space, trial.params): 0 for trial in chosen}
    for done in ledger.trials(name) if ledger.exists(name) else []:
        if (key := identity(space, done.params)) in counts:
            counts[key] += 1
    rounds = range(max(seeds - min(counts.values(), default=0), 0))
    return [t for i in rounds for t in chosen if counts[identity(space, t.params)] + i < seeds]
