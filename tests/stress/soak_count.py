"""Counts what kills have cost: the ledger must know everything that others have seen."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from soak_sweeps import STEPS, facts

from automl.core.trial import Trial
from automl.ledger import Ledger
from workers.protocol import Report

PATIENCE = 300.0  # seconds without a new attempt


@dataclass
class SoakCount:
    """Kills, and what was lost or counted twice."""

    kind: str
    kills: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    sweeps: int = 0
    ended: int = 0
    problems: list[str] = field(default_factory=list)

    def check(self, ledger: Ledger, name: str) -> None:
        """Compare the ledger with everything that was acknowledged so far."""
        trials = ledger.trials(name)
        latest: dict[int, list[Any]] = {}
        for line in _acknowledged(ledger, name):
            number, *fact = json.loads(line)
            latest[number] = fact
        stored = every_report(ledger, name)
        for number, fact in latest.items():
            self._compare(name, number, fact, trials, stored)
        if [trial.number for trial in trials] != list(range(len(trials))):
            self._problem("doubled", f"{name}: numbers {[trial.number for trial in trials]}")

    def finish(self, ledger: Ledger, name: str, num_trials: int) -> None:
        """Check a sweep at its end: every trial and report once, no attempt run twice."""
        self.check(ledger, name)
        self.sweeps += 1
        trials = ledger.trials(name)
        ended = all(trial.state.finished for trial in trials)
        if ended and ledger.snapshot(name).state == "finished":
            self.ended += 1
        else:
            self.problems.append(f"{name} has not ended")
        if len(trials) != num_trials:
            self._problem("doubled", f"{name}: {len(trials)} trials")
        for trial in trials:
            steps = [report.step for report in trial.reports]
            if steps != list(range(STEPS)) or str(trial.state) != "completed":
                self._problem("doubled", f"{name}: {trial}")
        self._check_attempts(ledger, name, trials)
        self.acknowledged += len(_acknowledged(ledger, name))

    def watch(self, child: Any, name: str, last: float) -> None:
        """End a controller if its sweep has started no attempt since `last`, for too long."""
        if time.monotonic() - last > PATIENCE:
            self.problems.append(f"{name}: no attempt has started for {PATIENCE:.0f} s")
            child.terminate()
            child.join()

    def end(self, child: Any, ledger: Ledger, name: str, trials: int) -> None:
        """Wait for a controller, and check its sweep."""
        child.join()
        if child.exitcode != 0:
            self.problems.append(f"{name}: exit status {child.exitcode}")
        self.finish(ledger, name, trials)

    def row(self) -> dict[str, Any]:
        """The row of the results."""
        return {**vars(self), "kills": dict(self.kills), "at": time.strftime("%Y-%m-%d")}

    def _compare(
        self, name: str, number: int, fact: list[Any], trials: list[Trial], stored: set[str]
    ) -> None:
        if number >= len(trials):
            self._problem("lost", f"{name}/{number} is gone")
            return
        params, attempts, reports, final = fact
        kept = json.loads(json.dumps(facts(trials[number])))
        if kept[0] != params or kept[1] < attempts or (final and kept[3] != final):
            self._problem("lost", f"{name}/{number}: {fact} became {kept}")
        if missing := [report for report in reports if json.dumps([number, *report]) not in stored]:
            self._problem("lost", f"{name}/{number}: reports {missing} are gone")

    def _check_attempts(self, ledger: Ledger, name: str, trials: list[Trial]) -> None:
        lines = (ledger.files(name).path / "marks").read_text().splitlines()
        for mark, times in Counter(line.rsplit(" ", 1)[0] for line in lines).items():
            number, attempt = map(int, mark.split())
            if times > 1:
                self._problem("doubled", f"{name}: attempt {mark} ran {times} times")
            if trials[number].attempts < attempt:
                self._problem("lost", f"{name}: attempt {mark} ran and is not in the ledger")

    def _problem(self, which: str, text: str) -> None:
        setattr(self, which, getattr(self, which) + 1)
        self.problems.append(text[:2000])


def every_report(ledger: Ledger, sweep: str) -> set[str]:
    """Every report in the log of a sweep, with those of superseded attempts."""
    return {
        json.dumps([event.trial, event.attempt, event.sequence, event.step, dict(event.metrics)])
        for event in ledger.events(sweep)
        if isinstance(event, Report)
    }


def _acknowledged(ledger: Ledger, name: str) -> list[str]:
    file = Path(ledger.name).parent / f"{name}.acknowledged"
    return file.read_text().splitlines() if file.exists() else []
