"""The most proof in ten minutes: correctness side by side, then what must have the GPU alone."""

from __future__ import annotations

import csv
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.common.bounds import Claim, conclude
from benchmarks.training.gpu_stages._case import Case, Row, Target
from benchmarks.training.gpu_stages._child import THROTTLED, stage_of
from benchmarks.training.gpu_stages._runner import KEYS, Book, run_stage

TOGETHER: Final = (
    ("process_groups",),
    ("defects", "waits", "machine"),
    ("losses",),
    ("memory_estimates",),
)
SHARE_TOGETHER: Final = 0.42  # of all seconds, at most
ALONE: Final = (("failures", 75.0), ("attempts", 100.0), ("knobs", 400.0), ("busy_share", 60.0))
KEPT_FOR_LAST: Final = 50.0  # for the busy share, which needs as much
STAGES: Final = (*(name for group in TOGETHER for name in group), *(name for name, _ in ALONE))
_CLOCKS: Final = "clocks.sm,power.draw,temperature.gpu,clocks_event_reasons.active"


def run(
    target: Target, book: Book, seconds: float, stages: Sequence[str], *, quick: bool = False
) -> int:
    """Measure, print every row, and end with the verdict.

    Args:
        target: the device.
        book: keeps the rows.
        seconds: for all of it; 0 to print the rows that are there.
        stages: that are measured.
        quick: only the cases of `--quick`.

    Returns:
        The exit status: 1 if a case has failed or a claim is missed.
    """
    begun = time.monotonic()
    end = begun + seconds
    known = {name: book.rows(name) for name in STAGES}

    def asked(name: str) -> list[Case]:
        found = stage_of(name).cases(target, known)
        return [case for case in found if case.quick or not quick]

    cases = {name: asked(name) for name in stages}

    def measure(name: str, limit: float) -> None:
        if limit <= 0 or name not in cases:
            return
        known["knobs"] = book.rows("knobs")  # the busy share takes the fastest
        cases[name] = asked(name)
        print(f"== {time.monotonic() - begun:.0f} s: {name}, {limit:.0f} s at most", flush=True)
        run_stage(name, cases[name], target, book, limit)

    def group(names: Sequence[str]) -> None:
        for name in names:
            measure(name, begun + SHARE_TOGETHER * seconds - time.monotonic())

    folder = book.path.parent if book.path and target.cuda and seconds else None
    with clocks(folder) as record:
        with ThreadPoolExecutor(len(TOGETHER)) as pool:
            list(pool.map(group, TOGETHER))
        for name, limit in ALONE:
            kept = 0.0 if name == "busy_share" else min(KEPT_FOR_LAST, seconds / 8)
            measure(name, min(limit, end - kept - time.monotonic()))
    return verdict(cases, target, book, [*throttled(record)])


def verdict(cases: dict[str, list[Case]], target: Target, book: Book, more: Sequence[Claim]) -> int:
    """Print rows and claims; the last line is the verdict."""
    found: list[Claim] = list(more)
    left = []
    for name, asked in cases.items():
        stage = stage_of(name)
        print(f"\n{name}: {stage.summary}")
        rows = book.rows(name)
        for case in asked:
            row = rows.get(case.name)
            print(f"  {case.name:60} {_told(name, row)}")
            if row is None:
                left.append(f"{name}: {case.name}")
            elif "failure" in row:
                found.append(Claim(f"{name}: {case.name}", False, str(row["failure"])))
        good = {key: row for key, row in rows.items() if "failure" not in row}
        found.append(Claim(f"{name}: cases without failure", bool(good), str(len(good))))
        claims = [] if target.tiny else stage.claims(good)
        found += [claim for claim in claims if claim.holds is not None]
    if left:
        print(f"\nnot reached, {len(left)}: {'; '.join(left)}")
    return conclude(found)


def _told(stage: str, row: Row | None) -> str:
    if row is None:
        return "not reached"
    try:
        return str(row.get("failure") or stage_of(stage).line(row))
    except (KeyError, TypeError):  # a rehearsal lacks figures
        return str({key: value for key, value in row.items() if key not in KEYS})


@contextmanager
def clocks(folder: Path | None) -> Iterator[Path | None]:
    """Record clock, power and temperature every two seconds while inside."""
    if folder is None:
        yield None
        return
    path = folder / "clocks.csv"
    command = ["nvidia-smi", f"--query-gpu={_CLOCKS}", "--format=csv,noheader", "-l", "2"]
    with path.open("w") as file:
        try:
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)
        except OSError:
            yield None
            return
        try:
            yield path
        finally:
            process.kill()
            process.wait()


def throttled(record: Path | None) -> Iterator[Claim]:
    """Whether the GPU was slowed down by heat or power while it was measured."""
    rows = list(csv.reader(record.read_text().splitlines())) if record else []
    reasons = [int(row[3].strip(), 16) for row in rows if len(row) == 4 and "0x" in row[3]]
    if reasons:
        slow = sum(bool(reason & THROTTLED) for reason in reasons)
        note = f"{slow} of {len(reasons)} looks were slowed down by heat or power"
        yield Claim("clocks of the GPU", slow == 0, note)
