from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from objectives import make_spec, marked, poisoned
from processes import begin, wait_until

from automl.core.trial import Trial, TrialState
from automl.ledger import Ledger


def finished(ledger: Ledger) -> dict[int, str]:
    return {
        trial.number: repr(vars(trial)) for trial in ledger.trials("test") if trial.state.finished
    }


def running(ledger: Ledger) -> list[Trial]:
    return [trial for trial in ledger.trials("test") if trial.state is TrialState.RUNNING]


def test_a_controller_killed_again_and_again_loses_and_repeats_nothing(tmp_path: Path) -> None:
    spec = make_spec(trials=14, max_retries=9)
    ledger = Ledger.open(tmp_path, create=True)
    ledger.create_sweep(spec)
    kept: dict[int, str] = {}
    for delay in (
        0.0,
        0.013,
        0.06,
        0.11,
        0.19,
        0.26,
    ):  # a trial takes 0.2 s: every part of one is hit
        child = begin(tmp_path, spec, marked)
        wait_until(lambda: bool(running(ledger)))
        time.sleep(delay)
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
        assert ledger.snapshot("test").state == "interrupted"
        now = finished(ledger)
        assert kept.items() <= now.items()
        kept = now
    last = begin(tmp_path, spec, marked)
    last.join()
    assert last.exitcode == 0

    trials = ledger.trials("test")
    assert kept.items() <= finished(ledger).items()
    assert [trial.number for trial in trials] == list(range(14))
    assert {trial.state for trial in trials} == {TrialState.COMPLETED}
    assert all(
        len({(p.attempt, p.sequence) for p in trial.reports}) == len(trial.reports)
        for trial in trials
    )
    assert all([p.step for p in trial.reports] == [0, 1, 2, 3] for trial in trials)

    marks = [
        line.split() for line in (ledger.files("test").path / "marks").read_text().splitlines()
    ]
    begun = [(int(trial), int(attempt)) for what, trial, attempt in marks if what == "begin"]
    assert len(set(begun)) == len(begun), "no attempt runs twice"
    for trial in trials:
        ran = [attempt for number, attempt in begun if number == trial.number]
        assert trial.attempts >= max(ran)
        assert max(ran) == trial.attempts, "nothing runs after the attempt that counted"
    assert sum(trial.attempts for trial in trials) <= 14 + 6


def test_a_trial_that_kills_its_controller_fails_in_the_end(tmp_path: Path) -> None:
    """A segmentation fault inline would otherwise be tried again at each resume."""
    spec = make_spec(trials=3, max_retries=2)
    ledger = Ledger.open(tmp_path, create=True)
    ledger.create_sweep(spec)
    codes = []
    for _ in range(4):
        child = begin(tmp_path, spec, poisoned)
        child.join()
        codes.append(child.exitcode)
    assert codes == [-signal.SIGSEGV] * 3 + [0]
    trials = ledger.trials("test")
    assert [str(trial.state) for trial in trials] == ["failed", "completed", "completed"]
    assert (trials[0].failure, trials[0].attempts) == ("crashed", 3)
    assert trials[0].message == "its controller was lost (after 2 retries)"
