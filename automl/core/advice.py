"""What a person should know about the programs of a sweep: a function of the finished trials."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from .goals import Goal
from .mistakes import misspelt
from .trial import BUFFERED, FILES, Trial

MAX_PAIRS: Final = 16  # earlier trials that one is compared with
MAX_RESULTS: Final = 16  # of the first trials: a misspelt name is in each
END_SHARE: Final = 0.1  # of a trial's time is its end
_VARYING: Final = re.compile(r"[0-9a-f]*\d[0-9a-f]*")


def advice(
    trials: Sequence[Trial], ignored: Collection[str] = (), goals: Sequence[Goal] = ()
) -> list[str]:
    """Sentences for a person; at most one of a kind.

    Args:
        trials: of a sweep.
        ignored: paths of files that this process writes.
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
    shared = next(_shared(known, ignored), None)
    if shared is not None:
        path, first, second = shared
        found.append(
            f"trials {first} and {second} ran at the same time, and {path!r} has changed in both: "
            "if each writes it, they overwrite each other's. Write to {trial_dir} instead, or put "
            "`cwd: trial` into the configuration"
        )
    return found


def _shared(trials: list[Trial], ignored: Collection[str]) -> Iterator[tuple[str, int, int]]:
    """Files that overlapping trials seem to write, with the numbers of the trials.

    If each trial had files of its own, there would be at least as many of a kind as trials. A file
    counts if there are fewer, and it has changed at the end of the first trial or later: that is no
    file that a person has edited.
    """
    runs = [(trial.number, trial.details[FILES]) for trial in trials if FILES in trial.details]
    runs.sort(key=lambda run: run[1]["ended"])
    of_kind: dict[str, set[str]] = {}
    num_trials: dict[str, int] = {}
    for place, (second, later) in enumerate(runs):
        folder = later["place"].partition(":")[2]
        changed = [path for path in later["changed"] if f"{folder}/{path}" not in ignored]
        for kind in {_kind(path) for path in changed}:
            num_trials[kind] = num_trials.get(kind, 0) + 1
        for path in changed:
            of_kind.setdefault(_kind(path), set()).add(path)
        for first, earlier in runs[max(0, place - MAX_PAIRS) : place]:
            if earlier["place"] == later["place"] and later["began"] < earlier["ended"]:
                for path in sorted(changed):
                    few = len(of_kind[_kind(path)]) < num_trials[_kind(path)]
                    if few and _is_of_both(path, earlier, later):
                        yield path, min(first, second), max(first, second)


def _kind(path: str) -> str:
    """What files that differ by trial have in common: the folder and the suffix."""
    folder, _, name = path.rpartition("/")
    return f"{_VARYING.sub('#', folder)}/{name.partition('.')[2]}"


def _is_of_both(path: str, earlier: Mapping[str, Any], later: Mapping[str, Any]) -> bool:
    end = earlier["ended"] - END_SHARE * (earlier["ended"] - earlier["began"])
    return path in earlier["changed"] and later["changed"][path] >= end
