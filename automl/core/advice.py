"""What a person should know about the programs of a sweep: a function of the finished trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .goals import Goal
from .mistakes import misspelt
from .trial import BUFFERED, Trial

MAX_RESULTS: Final = 16  # of the first trials: a misspelt name is in each


def advice(trials: Sequence[Trial], goals: Sequence[Goal] = ()) -> list[str]:
    """Sentences for a person; at most one of a kind.

    Args:
        trials: of a sweep.
        goals: of the sweep.
    """
    known = [trial for trial in trials if trial.details]
    questions = (misspelt(trial, trial.returned, goals) for trial in trials[:MAX_RESULTS])
    found = [f"a trial has returned {words} Its reports count" for words in questions if words][:1]
    late = next((trial for trial in known if BUFFERED in trial.details), None)
    if late is not None:
        found.append(
            f"all {late.details[BUFFERED]} reports of trial {late.number} came at its end, too "
            "late for a stopper. If the program prints them before, it keeps them back: run it "
            "without a buffer: python -u, stdbuf -oL PROGRAM"
        )
    return found
