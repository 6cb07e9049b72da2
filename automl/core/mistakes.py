"""Mistakes in an objective: which failures are probably one, and which of them are alike."""

import difflib
import re
from collections.abc import Collection, Sequence
from typing import Final

from automl.errors import UsageError
from search_spaces.other_tools import UnknownAttribute
from workers.failures import NO_ROOM, PRINTED
from workers.protocol import Outcome

from .goals import Goal
from .trial import Trial, TrialState

# Words that differ from trial to trial: with a digit in them, or a temporary file's.
_VARYING: Final = re.compile(r"(?<![\w.+-])[\w.+-]*\d[\w.+-]*|tmp[a-z0-9_]{8}")
# A worker's death by its own doing; who is killed from outside is not to blame.
_DEATH: Final = re.compile(
    r"the worker(?: \(process \d+\))? "
    r"((?:ended with exit status|died:|was killed by signal \d+ \((?!SIGKILL|SIGTERM)).*?)"
    r"(?: \((?:after|retry) \d+ [^()]*\))?$"
)
# By the kernel for want of memory, or by a person; or because the disk is full.
_OUTSIDE: Final = re.compile(
    rf"was killed by signal \d+ \((?:SIGKILL|SIGTERM)\)|from outside|{NO_ROOM}"
)
# Failures from which the suggester learns where not to go: the first trials may all have them.
_LEARNED: Final = ("out_of_memory", "timeout", "non_finite")
_MAX_ALIKE: Final = 3
_MAX_LEARNED: Final = 10
ALIKE_NAMES: Final = 0.8  # least similarity of a misspelt name, by `difflib`


def most_alike(trial: Trial) -> int:
    """A sweep without a success ends after so many failures like this one; 0 if it goes on.

    A result of the wrong kind, or an attribute of another library, is one in every trial: the first
    ends the sweep.
    """
    if trial.exception in ("WrongReturn", UnknownAttribute.__name__):
        return 1
    if _teaches(trial):
        return _MAX_LEARNED
    if trial.failure == "preempted" and not ended_from_outside(trial):
        return 0
    return _MAX_ALIKE if trial.failure else 0


def is_mistake(trial: Trial) -> bool:
    """Whether a trial failed by what is probably a mistake in the objective.

    Failures from which the suggester learns are none, nor are workers that were lost.
    """
    if trial.state is not TrialState.FAILED or trial.failure == "preempted" or _teaches(trial):
        return False
    return bool(trial.exception) or trial.failure == "missing_metric" or died_by_itself(trial)


def _teaches(trial: Trial) -> bool:
    """Whether the suggester learns from a failure where not to go."""
    arithmetic = trial.failure == "non_finite" and trial.exception not in ("", "TrialFailure")
    return trial.failure in _LEARNED and not arithmetic


def misspelt(trial: Trial, given: Collection[str], goals: Sequence[Goal]) -> str:
    """A question if a trial has reported a goal, and its result has a similar name instead.

    Args:
        given: names of the metrics of its result. A name that it has reported too is no mistake.

    Returns:
        "" if there is nothing to ask.
    """
    for metric in [one.metric for one in goals if one.metric not in given]:
        others = {name.lower(): name for name in given if trial.reports.first(name) is None}
        close = difflib.get_close_matches(metric.lower(), others, 1, ALIKE_NAMES)
        if close and trial.reports.first(metric):
            return f"{others[close[0]]!r}, which is no goal: did you mean {metric!r}?"
    return ""


def check_result(trial: Trial, given: Collection[str], goals: Sequence[Goal]) -> None:
    """Raise UsageError if the result of a trial is `misspelt`, so that it can be given again."""
    if question := misspelt(trial, given, goals):
        known = ", ".join(dict.fromkeys(name for one in trial.reports for name in one.metrics))
        raise UsageError(
            f"trial {trial.number} has reported {known}, and is told {question} "
            f"All that is told: {', '.join(given)}. If it is a metric of its own, tell the goal too"
        )


def died_by_itself(trial: Trial) -> bool:
    """Whether the attempt of a failed trial has ended its worker."""
    return _DEATH.search(trial.message) is not None


def ended_from_outside(trial: Trial) -> bool:
    """Whether a trial failed by its machine: its process was killed, or the disk is full."""
    return trial.failure in ("crashed", "preempted") and bool(_OUTSIDE.search(trial.message))


def is_own_death(outcome: Outcome) -> bool:
    """Whether an attempt has ended its worker, such as by `os._exit` or a segmentation fault."""
    found = outcome.worker_lost and outcome.failure == "crashed"
    return found and _DEATH.search(outcome.message) is not None


def error_key(trial: Trial) -> tuple[str, str]:
    """What failures that are alike have in common: their kind, and how or where they failed.

    Of an exception the class and the line of the user's code count. Without such a line, the
    message does; `#` stands in it for words with a digit and for values of the trial, such as in
    the line that a program has printed last. Of a worker's death only how it died counts.
    """
    message = trial.message
    if (death := _DEATH.search(message)) is not None:
        message = death[1]
    elif trial.raised_at:
        return trial.failure or "", f"{trial.exception} at {trial.raised_at}"
    else:
        values = sorted({str(value) for value in trial.params.values()} - {""}, key=len)
        kinds = "|".join(re.escape(value) for value in reversed(values))
        message = message.partition(PRINTED)[0]  # such as the name of a run
        message = re.sub(rf"(?i)(?<![a-z])(?:{kinds})(?![a-z])", "#", message)
    return trial.failure or "", _VARYING.sub("#", message)
