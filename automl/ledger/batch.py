"""The rows that a commit writes, with their sums."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from automl.core import Answered, Begun, Proposed, SweepEvent, Trial, TrialEvent
from workers.protocol import Report

from . import sums
from .lease import TOTALS
from .reader import SweepContents
from .rows import Row, event_row, report_row, trial_row


@dataclass(frozen=True)
class Totals:
    """What a sweep's rows add up to.

    Args:
        holder: the columns `TOTALS` of the sweep's holder.
        trials: by number of a trial, its row's `sum`, `num_reports` and `reports_total`.
    """

    holder: dict[str, int]
    trials: dict[int, tuple[int, int, int]]

    @classmethod
    def of(cls, contents: SweepContents) -> "Totals":
        """The totals of a sweep that was read."""
        holder = contents.holder or dict.fromkeys(TOTALS, 0)
        return cls(
            {name: holder[name] for name in TOTALS},
            {row["number"]: _of_trial(row) for row in contents.trial_rows},
        )


@dataclass(frozen=True)
class Batch:
    """The rows of one commit.

    Args:
        num_events: of the recorder, that become these rows.
        totals: after the commit; its `trials` are those that the commit changes.
        begun: when attempts began, by trial; executed: identities of commands that became trials
            or were answered.
    """

    num_events: int
    totals: Totals
    new_trials: list[Row] = field(default_factory=list)
    changed_trials: list[Row] = field(default_factory=list)
    reports: list[Row] = field(default_factory=list)
    events: list[Row] = field(default_factory=list)
    begun: dict[int, float] = field(default_factory=dict)
    executed: set[int] = field(default_factory=set)


def make_batch(
    sweep: int, events: Sequence[SweepEvent], trials: Sequence[Trial], before: Totals, now: float
) -> Batch:
    """The rows for some events.

    Args:
        sweep: its id; trials: of the sweep, after the events; before: the totals without them.
        now: seconds since 1970.
    """
    batch = Batch(len(events), Totals(dict(before.holder), {}))
    _add_reports(batch, sweep, events, before)
    _add_trials(batch, sweep, events, trials, before)
    for event in events:
        if isinstance(event, Report):
            continue
        totals = batch.totals.holder
        linked = event_row(sweep, event, now) | {"previous": totals["last_event"]}
        batch.events.append(sums.EVENT.seal(linked))
        totals["last_event"] = batch.events[-1]["sum"]
        totals["num_events"] += 1
        if isinstance(event, Begun):
            batch.begun[event.trial] = event.at
        if isinstance(event, Proposed | Answered) and event.command is not None:
            batch.executed.add(event.command)
    return batch


def _add_reports(batch: Batch, sweep: int, events: Iterable[SweepEvent], before: Totals) -> None:
    """Add the rows of reports, and to `batch.totals.trials` what the reports of a trial add to."""
    changed = batch.totals.trials
    for event in events:
        if isinstance(event, Report):
            row = sums.REPORT.seal(report_row(sweep, event))
            batch.reports.append(row)
            known = changed.get(event.trial) or before.trials.get(event.trial, (0, 0, 0))
            changed[event.trial] = (known[0], known[1] + 1, sums.added(known[2], row["sum"]))


def _add_trials(
    batch: Batch,
    sweep: int,
    events: Iterable[SweepEvent],
    trials: Sequence[Trial],
    before: Totals,
) -> None:
    totals = batch.totals.holder
    for number in sorted(_changed(events)):
        known = before.trials.get(number)
        _, count, total = batch.totals.trials.get(number) or known or (0, 0, 0)
        counted = {"num_reports": count, "reports_total": total}
        row = sums.TRIAL.seal(trial_row(sweep, trials[number]) | counted)
        batch.totals.trials[number] = _of_trial(row)
        old = known[0] if known else 0
        totals["trials_total"] = sums.added(totals["trials_total"], row["sum"], -old)
        totals["num_trials"] += not known
        (batch.changed_trials if known else batch.new_trials).append(row)


def _changed(events: Iterable[SweepEvent]) -> set[int]:
    """Numbers of the trials that the events are of. Notes, commands and answers change none."""
    return {event.trial for event in events if isinstance(event, TrialEvent)}


def _of_trial(row: Row) -> tuple[int, int, int]:
    return row["sum"], row["num_reports"], row["reports_total"]
