"""What a person should know about the programs of a sweep: a function of the finished trials."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from .trial import Trial

FILES: Final = "files"  # key of a trial's details: see `workers.command.changes`
BUFFERED: Final = "buffered"  # key of a trial's details: how many reports came at its end
MAX_PAIRS: Final = 16  # earlier trials that one is compared with
_VARYING: Final = re.compile(r"[0-9a-f]*\d[0-9a-f]*")


def advice(trials: Iterable[Trial], ignored: Collection[str] = ()) -> list[str]:
    """Sentences for a person; at most one of a kind.

    Args:
        trials: of a sweep.
        ignored: paths of files that this process writes.
    """
    known = [trial for trial in trials if trial.details]
    found = []
    late = next((trial for trial in known if BUFFERED in trial.details), None)
    if late is not None:
        found.append(
            f"all {late.details[BUFFERED]} reports of trial {late.number} came at its end, too "
            "late for a stopper: the program keeps back what it prints. Run it without a buffer: "
            "python -u, stdbuf -oL PROGRAM"
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

    A file counts if it has changed while the first ran, and again after that had ended. It does
    not if others are named like it but for a number: each trial has its own then.
    """
    runs = [(trial.number, trial.details[FILES]) for trial in trials if FILES in trial.details]
    runs.sort(key=lambda run: run[1]["ended"])
    for place, (second, later) in enumerate(runs):
        for first, earlier in runs[max(0, place - MAX_PAIRS) : place]:
            if earlier["place"] != later["place"] or later["began"] >= earlier["ended"]:
                continue
            folder = later["place"].partition(":")[2]
            for path in _written_by_both(earlier, later):
                if f"{folder}/{path}" not in ignored:
                    yield path, min(first, second), max(first, second)


def _written_by_both(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> Iterator[str]:
    alike: dict[str, set[str]] = {}
    for path in (*earlier["changed"], *later["changed"]):
        alike.setdefault(_VARYING.sub("#", path), set()).add(path)
    for path, at in sorted(later["changed"].items()):
        again = at > earlier["ended"] and path in earlier["changed"]
        if again and len(alike[_VARYING.sub("#", path)]) == 1:
            yield path
