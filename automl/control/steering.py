"""The requests of people: stop, pause and resume a trial; another budget, more workers."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from automl.core import Command, SweepSpec, Trial, TrialState
from automl.core.ranks import check_room
from automl.core.resources import checked_budget, read_workers
from automl.errors import AutomlError, UsageError
from automl.stopping.base import Stopper
from workers.protocol import StopRequest

from .journal import Journal
from .shutdown import Shutdown


class Steering:
    """Obeys people (`workflows.steering`). Used from the controller's thread.

    Args:
        journal: of the sweep.
        shutdown: asks trials to stop.
        stopper: knows whether trials can pause.
        respecify: tells the suggester of another specification.
    """

    def __init__(
        self,
        journal: Journal,
        shutdown: Shutdown,
        stopper: Stopper,
        respecify: Callable[[SweepSpec], None],
    ) -> None:
        self._journal = journal
        self._shutdown = shutdown
        self._stopper = stopper
        self._respecify = respecify

    def answer(self, command: Command) -> Mapping[str, Any]:
        """What has been done, in words.

        Raises:
            UsageError: there is no such trial, or no such command.
            AutomlError: it cannot be done in the present state of the trial or the sweep.
        """
        if command.kind == "budget":
            return {"done": self._set_budget(command.content)}
        if command.kind == "scale":
            return {"done": self._scale(command.content)}
        actions = {
            "stop_trial": self._stop,
            "pause_trial": self._pause,
            "resume_trial": self._resume,
        }
        if command.kind not in actions:
            raise UsageError(f"this version of automl does not know the request {command.kind!r}")
        trials = self._journal.trials
        if command.trial is None or not 0 <= command.trial < len(trials):
            raise UsageError(f"there is no trial {command.trial}: there are {len(trials)}")
        trial = trials[command.trial]
        return {"done": actions[command.kind](trial, command.by)}

    def _stop(self, trial: Trial, by: str) -> str:
        if trial.state.finished:
            raise AutomlError(f"trial {trial.number} is {trial.state} already")
        if trial.state is TrialState.RUNNING:
            self._shutdown.stop_trial(trial, StopRequest.STOP, f"stopped by {by}")
            return f"trial {trial.number} stops at its next report"
        self._journal.move(trial, TrialState.STOPPED, f"stopped by {by}")
        return f"trial {trial.number} is stopped"

    def _pause(self, trial: Trial, by: str) -> str:
        if trial.state is not TrialState.RUNNING:
            raise AutomlError(
                f"trial {trial.number} is {trial.state}: only a running one can pause"
            )
        if not self._stopper.can_pause:
            raise AutomlError(
                f"trial {trial.number} cannot pause: its objective does not go on from a "
                "checkpoint (resumable: true). Stop it instead"
            )
        self._shutdown.stop_trial(trial, StopRequest.PAUSE, f"paused by {by}", held=True)
        return f"trial {trial.number} pauses at its next report"

    def _resume(self, trial: Trial, by: str) -> str:
        if trial.state not in (TrialState.PAUSED, TrialState.INTERRUPTED):
            raise AutomlError(
                f"trial {trial.number} is {trial.state}: only a paused one can be resumed"
            )
        self._check_open()
        self._journal.move(trial, TrialState.WAITING, f"resumed by {by}")
        return f"trial {trial.number} goes on next"

    def _set_budget(self, content: Mapping[str, Any]) -> str:
        budget = checked_budget(replace(self._journal.spec.budget, **content))
        self._shutdown.reopen()
        self._check_open()
        self._journal.specify(replace(self._journal.spec, budget=budget))
        self._respecify(self._journal.spec)
        given = {name: value for name, value in vars(budget).items() if value is not None}
        shown = [f"{name} {v if isinstance(v, str) else f'{v:g}'}" for name, v in given.items()]
        return f"the budget is now: {', '.join(shown) or 'without end'}"

    def _scale(self, content: Mapping[str, Any]) -> str:
        workers = read_workers(dict(content))
        assert workers is not None, "a mapping is a range"
        check_room(self._journal.spec, workers.max)
        self._journal.dispatcher.scale(workers)
        self._journal.specify(self._journal.spec.with_workers(workers))
        return f"the sweep has {workers} workers from now on"

    def _check_open(self) -> None:
        """Raise AutomlError if the sweep begins no more trials."""
        if self._shutdown.request is not None:
            raise AutomlError(
                f"the sweep begins no more trials: {self._shutdown.reason}. Raise its budget first"
            )
