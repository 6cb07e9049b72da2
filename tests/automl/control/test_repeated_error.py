"""A mistake in the objective is shown, and ends the sweep after three errors that are alike."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from objectives import make_spec, quick, run_inline, states

import automl
from automl.control.steering import reason_of_failures
from automl.core import Noted, SweepState, Trial, TrialState
from automl.ledger import Ledger
from automl.result import Result
from automl.workflows import beginning
from automl.workflows.beginning import FinishedTrial
from workers.command.command import CommandObjective
from workers.context import Context

FAILED, RUNNING = TrialState.FAILED, TrialState.RUNNING


def mistaken(trial: Context) -> Any:
    return {"loss": trial.params["lerning_rate"]}


def test_three_exceptions_that_are_alike_end_a_sweep_with_a_note(ledger: Ledger) -> None:
    snapshot = run_inline(ledger, make_spec(trials=12), mistaken)
    assert (snapshot.state, states(snapshot)) == ("finished", ["failed"] * 3)
    notes = [event for event in ledger.events("test") if isinstance(event, Noted)]
    assert "KeyError: 'lerning_rate'. After three errors" in notes[-1].message
    with pytest.raises(automl.AutomlError, match="lerning_rate") as caught:
        Result(snapshot).best  # noqa: B018
    lines = str(caught.value).splitlines()
    assert lines[-1] == "KeyError: 'lerning_rate'"
    assert 'return {"loss": trial.params["lerning_rate"]}' in lines[-3]
    begin = next(i for i, line in enumerate(lines) if line.startswith("Traceback"))
    assert "test_repeated_error.py" in lines[begin + 1]  # the objective's first frame, not ours


def test_imported_trials_are_no_success(ledger: Ledger) -> None:
    spec = make_spec(trials=12)
    ledger.create_sweep(spec)
    known = FinishedTrial({"lr": 0.01, "optimizer": "sgd"}, {"loss": 1.0})
    beginning.add(ledger, spec.name, [known])
    snapshot = run_inline(ledger, spec, mistaken, resume=True)
    assert states(snapshot) == ["completed", *["failed"] * 3]


def test_a_worker_that_ends_itself_is_not_started_for_every_trial(tmp_path: Path) -> None:
    result = automl.sweep(
        lambda trial: os._exit(7),
        {"x": (0.0, 1.0)},
        "minimize loss",
        trials=6,
        workers=1,
        store=tmp_path,
        suggester="sobol",
    )
    assert [trial.attempts for trial in result.trials] == [3]
    with pytest.raises(automl.AutomlError, match="ended with exit status 7"):
        result.best  # noqa: B018


@pytest.mark.parametrize(
    ("good", "ended", "words"),
    [
        (9, [2, 2, 2], "3 trials failed alike and none succeeded: the command was killed"),
        (1, [2, 1, 2, 2, 2], "3 trials failed alike and none succeeded in between: the command"),
    ],
)
def test_three_trials_in_a_row_whose_process_is_killed_end_it(
    ledger: Ledger, good: int, ended: list[int], words: str
) -> None:
    """A kill is no proof against a configuration, so each trial is tried again before."""
    line = f"test $AUTOML_TRIAL = {good} && echo loss=1 || kill -9 $$"
    command = CommandObjective(("sh", "-c", line), reports={"loss": r"loss=(\d)"}, goal="loss")
    snapshot = run_inline(ledger, make_spec(trials=12, max_retries=1), command)
    assert [trial.attempts for trial in snapshot.trials] == ended
    assert words in snapshot.reason
    assert "(SIGKILL) from outside (after 1 retries). Who kills it?" in snapshot.reason


@pytest.mark.parametrize("is_command", [False, True])
def test_errors_with_random_texts_are_alike_by_their_line(
    ledger: Ledger, tmp_path: Path, is_command: bool
) -> None:
    """The line of the user's code counts, not that of the library which it calls."""
    code = (
        "import tempfile, pathlib\nfolder = tempfile.mkdtemp()\npathlib.Path(folder).read_text()\n"
    )
    (tmp_path / "train.py").write_text(code, encoding="utf-8")

    def function(trial: Context) -> Any:
        exec(compile(code, "train.py", "exec"))

    command = CommandObjective((sys.executable, "train.py"), folder=str(tmp_path))
    snapshot = run_inline(ledger, make_spec(trials=6), command if is_command else function)
    assert [trial.raised_at for trial in snapshot.trials] == ["train.py:3"] * 3
    assert len({trial.message for trial in snapshot.trials}) == 3


@pytest.mark.parametrize(
    "errors",
    [
        pytest.param([ValueError("a"), KeyError("a"), TypeError("a")] * 2, id="other classes"),
        pytest.param([MemoryError()] * 6, id="memory"),
        pytest.param([ValueError("a"), None, *[ValueError("a")] * 4], id="a success"),
    ],
)
def test_other_failures_do_not_end_it(ledger: Ledger, errors: list[Exception | None]) -> None:
    def objective(trial: Context) -> Any:
        if (error := errors[trial.number]) is not None:
            raise error
        return quick(trial)

    assert len(run_inline(ledger, make_spec(trials=6), objective).trials) == 6


@pytest.mark.parametrize(("number", "ends"), [(0, False), (4, True)])
def test_a_trial_that_may_still_succeed_keeps_the_sweep_alive(number: int, ends: bool) -> None:
    """It may if it has outlived those that failed."""
    state = SweepState()
    state.trials = [
        Trial(n, {}, FAILED, failure="crashed", exception="ValueError", seconds=1.0, ended=1.0 + n)
        for n in (1, 2, 3)
    ]
    state.index.update(Trial(number, {}, RUNNING))
    assert bool(reason_of_failures(state, state.trials[-1], since=0.0)) is ends


@pytest.mark.parametrize("alike", [True, False])
def test_commands_fail_alike_by_their_exit_status(ledger: Ledger, alike: bool) -> None:
    """Whatever they have printed."""
    status = "7" if alike else "$((AUTOML_TRIAL + 1))"
    command = CommandObjective(("sh", "-c", f"echo no $AUTOML_TRIAL; exit {status}"))
    snapshot = run_inline(ledger, make_spec(trials=6), command)
    assert len(snapshot.trials) == (3 if alike else 6)
    assert [trial.exit_status for trial in snapshot.trials][:2] == ([7, 7] if alike else [1, 2])


def test_three_trials_that_find_the_disk_full_end_a_sweep_after_a_success(ledger: Ledger) -> None:
    def full(trial: Context) -> float:
        if trial.number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return 1.0

    snapshot = run_inline(ledger, make_spec(trials=12), full)
    assert states(snapshot) == ["completed", *["failed"] * 3]
    assert "no room on the disk" in snapshot.reason
    assert "Free some room" in snapshot.reason


def test_a_constraint_on_a_metric_that_no_trial_has_ends_a_sweep(ledger: Ledger) -> None:
    def sized(trial: Context) -> dict[str, float]:
        return {"loss": 1.0, "size": 1.0 + trial.number}

    snapshot = run_inline(ledger, make_spec(trials=12, constraints=("bytes <= 0.5",)), sized)
    assert states(snapshot) == ["completed"] * 3
    assert "constraint bytes <= 0.5; they have loss, " in snapshot.reason
    known = make_spec("known", trials=12, constraints=("size <= 0.5",))
    assert len(run_inline(ledger, known, sized).trials) == 12  # infeasible, each of them
