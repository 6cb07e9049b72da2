"""A sweep whose trials are paused and resumed, and what each of their attempts has trained."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import automl
from automl.core import Trial, TrialState
from automl.stopping.base import CONTINUE, Decision, Stopper

STEPS = 6


class PausesTwice(Stopper):
    """Pauses trial 1 after its second report and after its last; stops trial 2 for good."""

    name = "pauses-twice"

    def decide(self, trial: Trial, trials: Sequence[Trial]) -> Decision:
        reports = len(trial.reports)
        if trial.number == 1 and reports in (2, STEPS):
            return Decision("pause", "the test pauses it")
        if trial.number == 2 and reports == 3:
            return Decision("stop", "the test stops it")
        return CONTINUE

    def resume(self, trials: Sequence[Trial], *, last: bool = False) -> tuple[int, str] | None:
        if len(trials) > 1 and trials[1].state is TrialState.PAUSED:
            return 1, "the test resumes it"
        return None


def log(trial: Any, step: int) -> None:
    """Note a step that was trained, beside the trial's checkpoints."""
    with (trial.folder / "trained.log").open("a") as file:
        file.write(f"{step}\n")


def sweep(
    objective: Callable[[Any], Any], space: Any, goal: str, store: Path, **options: Any
) -> automl.Result:
    """A sweep of three trials in this process."""
    given: dict[str, Any] = {
        "suggester": "random",
        "stopper": PausesTwice,
        "dispatcher": "inline",
        "max_steps": STEPS,
        "trials": 3,
        "store": store,
        **options,
    }
    return automl.sweep(objective, space, goal, progress=False, **given)


def check(result: automl.Result, store: Path) -> Trial:
    """The trial that went on after a pause; no step is missing or was trained twice."""
    assert [(t.failure, t.message, t.traceback) for t in result.trials if t.failure] == []
    first, paused, stopped = result.trials
    assert [first.state, paused.state, stopped.state] == ["completed", "completed", "stopped"]
    assert paused.attempts > 1
    for trial, last in ((first, STEPS), (paused, STEPS), (stopped, 3)):
        (file,) = store.glob(f"**/trials/{trial.number}/trained.log")
        trained = [int(line) for line in file.read_text().split()]
        assert trained == list(range(1, last + 1))
        assert [point.step for point in trial.reports] == trained
    return paused
