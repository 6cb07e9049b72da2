"""Mistakes in an objective: which failures are probably one, and which of them are alike."""

import re
from typing import Final

from .trial import Trial, TrialState

USAGE_ERROR: Final = "the command ended with exit status 2:"  # what most programs mean by 2
_NUMBER: Final = r"[-+]?\d[\d.]*(?:[eE][-+]?\d+)?"
_NOT_MISTAKES: Final = ("out_of_memory", "timeout", "preempted")


def is_mistake(trial: Trial) -> bool:
    """Whether a trial failed by an exception that is probably a mistake in the objective.

    A `TrialFailure` is none: whoever raises it says that the configuration is at fault. Nor are
    failures that depend on the configuration or on the machine.
    """
    if trial.state is not TrialState.FAILED or trial.failure in _NOT_MISTAKES:
        return False
    if trial.exception:
        return trial.exception != "TrialFailure"
    return trial.failure == "missing_metric"


def error_key(trial: Trial) -> tuple[str, str]:
    """What failures that are alike have in common: their kind and message.

    A program that does not know an argument repeats it with the value that the trial has. So `#`
    stands for numbers and for values of the trial if a command ended with exit status 2.
    """
    message = trial.message
    if message.startswith(USAGE_ERROR):
        from workers.command.arguments import text_of  # its package takes 0.05 s to import

        values = sorted(map(text_of, trial.params.values()), key=len, reverse=True)
        kinds = "|".join([*(re.escape(value) for value in values if value), _NUMBER])
        message = re.sub(rf"(?<![\w.])(?:{kinds})(?![\w.])", "#", message)
    return trial.failure or "", message
