"""A model of a sweep in a few lines: what its trials are after each request, event and loss."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from automl.core import Command, SweepState, Trial

FINISHED = ("completed", "stopped", "failed")


@dataclass
class Row:
    """What is compared of a trial; `told` is when its agent's lease was renewed last."""

    state: str = "waiting"
    attempts: int = 0
    retries: int = 0
    failure: str | None = None
    held: bool = False
    reports: list[tuple[int, int, int, float]] = field(default_factory=list)
    agent: str = ""
    asked: str | None = None
    asked_held: bool = False
    told: int = 0

    def begin(self) -> None:
        self.state, self.held = "running", False
        self.attempts += 1

    def report(self, attempt: int, sequence: int, step: int, loss: float) -> None:
        """A duplicate, or one of another attempt, changes nothing."""
        if self.state != "running" or attempt != self.attempts:
            return
        if self.reports and self.reports[-1][0] < attempt:
            self.reports = [known for known in self.reports if known[2] < step]
        if (attempt, sequence) not in [known[:2] for known in self.reports]:
            self.reports = sorted([*self.reports, (attempt, sequence, step, loss)])

    def end(
        self, ending: str, failure: str | None, lost: bool, max_retries: int, stop: str | None
    ) -> None:
        """An attempt ends; `stop` is how the sweep itself is ending."""
        held = self.asked_held
        self.leave("")
        self.held = held
        if ending == "interrupted" and stop != "interrupt":
            self.state = "waiting"
        elif ending == "paused" and stop == "stop":
            self.state = "stopped"
        elif ending != "failed":
            self.state = ending
        elif stop and lost:
            self.state = "stopped"
        elif (failure == "preempted" or lost) and self.retries < max_retries:
            self.state = "waiting"
            self.retries += 1
        elif failure == "crashed" and not lost and self.said_all_before:
            self.state = "stopped"
        else:
            self.state, self.failure = "failed", failure

    @property
    def said_all_before(self) -> bool:
        """Earlier attempts have reported the loss, and this one nothing."""
        return bool(self.reports) and self.reports[-1][0] < self.attempts

    def asked_ending(self, otherwise: str) -> str:
        """How the attempt ends if its agent does what it was asked to do."""
        return {"stop": "stopped", "pause": "paused"}.get(self.asked or "", otherwise)

    def leave(self, state: str) -> None:
        self.state, self.agent, self.asked, self.asked_held = state, "", None, False


class Model:
    """A sweep as its requests, events and losses leave it.

    Attributes:
        rows: trials by number; closed: how its last controller has ended its run.
        lost: its last controller has died.
        waiting: commands without an answer, each with the time at which it was sent.
        limits: of parameters.
    """

    def __init__(self, trials: int, max_retries: int) -> None:
        self.rows: list[Row] = []
        self.closed = "interrupted"
        self.lost = False
        self.waiting: list[tuple[Command, int]] = []
        self.limits: dict[str, Any] = {}
        self.budget = trials
        self.max_retries = max_retries
        self.now = 0
        self._stop: str | None = None

    def send(self, command: Command, now: int) -> None:
        if command.kind == "limits":
            changed = {**self.limits, **command.content}
            self.limits = {name: limit for name, limit in changed.items() if limit is not None}
        else:
            self.waiting.append((command, now))

    def propose(self) -> Row:
        self.rows.append(Row())
        self.closed = "interrupted"
        return self.rows[-1]

    def begin(self, row: Row) -> None:
        row.begin()
        self.closed = "interrupted"

    def move(self, row: Row, state: str) -> None:
        row.leave(state)
        if state == "waiting":
            self.closed = "interrupted"

    def end(
        self,
        row: Row,
        ending: str,
        failure: str | None = None,
        *,
        lost: bool = False,
        stop: str | None = None,
    ) -> None:
        row.end(ending, failure, lost, self.max_retries, stop)

    def serve(self, stop: bool, now: int) -> None:
        """Somebody holds the sweep for a moment and answers all; with `stop`, he ends it."""
        self.now = now
        is_finished = self.closed == "finished" and not self.lost
        self.lost = False
        self._stop = "stop" if is_finished else None
        self._take_up()
        if stop and not is_finished:
            self._stop = "stop"
            for row in self.rows:
                if row.agent:
                    row.asked, row.asked_held = "stop", False
        order = ("enqueue", "", "ask")  # all others come between
        for turn in order:
            if turn == "ask":
                self._expire()
            for command, sent in self.waiting:
                if turn == (command.kind if command.kind in order else ""):
                    self._answer(command, sent)
        self.waiting = []
        busy = self._next_waiting() or any(row.state == "running" for row in self.rows)
        ends = self._stop is not None or not (busy or len(self.rows) < self.budget)
        for row in self.rows if ends else ():
            if row.state not in FINISHED and not row.agent:
                row.leave("stopped")
        self.closed = "finished" if ends else "interrupted"

    def _take_up(self) -> None:
        """What a controller does first: attempts without an agent are lost."""
        for row in self.rows:
            if row.state == "running" and not row.agent:
                self.end(row, "failed", "crashed", lost=True)
            elif row.state == "interrupted":
                self.move(row, "waiting")
        if not self.rows:
            self.propose()

    def _expire(self) -> None:
        for row in self.rows:
            if row.agent and self.now > row.told:
                lost = row.asked is None
                self.end(row, row.asked_ending("failed"), "crashed", lost=lost, stop=self._stop)

    def _answer(self, command: Command, sent: int) -> None:
        if command.kind == "enqueue":
            self.propose()
        elif command.kind == "ask":
            self._ask(command, sent)
        elif command.kind == "budget":
            self._stop = None
            self.budget = command.content["trials"]
        elif command.trial is not None and command.trial < len(self.rows):
            row, content = self.rows[command.trial], command.content
            if command.kind not in ("report", "tell", "fail"):
                self._steer(row, command.kind)
            elif (
                row.agent == command.by
                and sent <= row.told
                and content["attempt"] in (None, row.attempts)
            ):
                self._of_agent(row, command.kind, content)

    def _ask(self, command: Command, sent: int) -> None:
        if self._stop or self.now > sent:
            return
        row = self._next_waiting()
        if row is None and len(self.rows) < self.budget:
            row = self.propose()
        if row is not None:
            self.begin(row)
            row.agent, row.told = command.by, self.now

    def _next_waiting(self) -> Row | None:
        """The first one; one beyond the budget, enqueued ones too, does not begin."""
        waiting = [(trial, row) for trial, row in enumerate(self.rows) if row.state == "waiting"]
        return next((row for trial, row in waiting if row.attempts or trial < self.budget), None)

    def _steer(self, row: Row, kind: str) -> None:
        if kind == "stop_trial" and row.state == "running":
            row.asked, row.asked_held = "stop", False
        elif kind == "stop_trial" and row.state not in FINISHED:
            row.leave("stopped")
        elif kind == "pause_trial" and row.state == "running":
            row.asked, row.asked_held = "pause", True
        elif kind == "resume_trial" and row.state == "paused" and not self._stop:
            self.move(row, "waiting")

    def _of_agent(self, row: Row, kind: str, content: Any) -> None:
        if kind == "report":
            mine = [known for known in row.reports if known[0] == row.attempts]
            last = mine[-1] if mine else (0, -1, -1, 0.0)
            step, loss = content["step"], content["metrics"]["loss"]
            if step >= last[2]:
                row.told = self.now
                if (step, loss) != last[2:]:
                    row.report(row.attempts, last[1] + 1, step, loss)
        elif kind == "tell":
            self.end(row, row.asked_ending("completed"), stop=self._stop)
        else:
            self.end(row, "failed", content["failure"], stop=self._stop)


def facts(rows: list[Row]) -> list[list[Any]]:
    """What is compared."""
    return [[value for name, value in vars(row).items() if name != "told"] for row in rows]


def facts_of(trials: list[Trial]) -> list[list[Any]]:
    """What is compared, of real trials."""
    return [
        [
            str(trial.state),
            trial.attempts,
            trial.retries,
            trial.failure,
            trial.held,
            [(p.attempt, p.sequence, p.step, p.metrics["loss"]) for p in trial.reports],
            trial.lease.agent if trial.lease else "",
            trial.lease.asked and str(trial.lease.asked) if trial.lease else None,
            bool(trial.lease and trial.lease.held),
        ]
        for trial in trials
    ]


def sweep_of(state: SweepState) -> list[Any]:
    """What else is compared, of a real sweep."""
    kinds = [command.kind for command in state.requests.values()]
    return [state.closed, state.limits, kinds, state.spec.budget.trials]
