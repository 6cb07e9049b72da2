"""Is everything for CUDA right on this GPU? Run it on a machine with one.

    python benchmarks/training/gpu.py                   every stage, what is missing
    python benchmarks/training/gpu.py knobs failures    these stages
    python benchmarks/training/gpu.py --quick           some cases of each stage; nothing is stored
    python benchmarks/training/gpu.py --table [--check] the stored rows
    python benchmarks/training/gpu.py --rehearse        on the CPU, in tiny sizes; nothing is stored
    python benchmarks/training/gpu.py --ten-minutes --rows DIR  the most proof in `--seconds`

With `--ten-minutes` correctness is measured in four processes side by side; failures, the cost of
an attempt, knobs and the busy share then have the GPU alone. What comes first matters most, and a
case that fails is a row. Else each stage ends within `--minutes` (9), by estimate half an hour.
Every row is stored at once, in `--rows FILE`. So an interrupted run goes on with the same command;
cases that have failed run again. The last line is the verdict. Without a GPU and without rows
nothing is measured: it says "NOT RUN" and ends with status 0. It needs torch and the packages that
the workloads import, but no Ray and no SQLAlchemy.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[2])  # the checkout need not be installed

from benchmarks.common import store  # noqa: E402
from benchmarks.common.bounds import Claim, complete, conclude  # noqa: E402
from benchmarks.common.options import benchmark_parser  # noqa: E402
from benchmarks.training.gpu_stages import _ten_minutes  # noqa: E402
from benchmarks.training.gpu_stages._case import Case, Target  # noqa: E402
from benchmarks.training.gpu_stages._child import stage_of  # noqa: E402
from benchmarks.training.gpu_stages._runner import Book, run_stage  # noqa: E402

ROWS = store.RESULTS / "gpu.jsonl"
STAGES = (
    "machine",
    "defects",
    "knobs",
    "failures",
    "attempts",
    "waits",
    "memory_estimates",
    "losses",
    "named_knobs",
    "process_groups",
    "busy_share",
)


def asked(stage: str, target: Target, book: Book, quick: bool) -> list[Case]:
    """The cases of a stage."""
    known = {name: book.rows(name) for name in STAGES}
    found = stage_of(stage).cases(target, known)
    return [case for case in found if case.quick or not quick]


def judged(stages: Sequence[str], target: Target, book: Book, quick: bool) -> list[Claim]:
    """Every case has a row without failure, and the claims of each stage.

    A rehearsal has no figures to judge. With `quick`, claims on what was not asked for are left
    out.
    """
    found = []
    for name in stages:
        rows = {key: row for key, row in book.rows(name).items() if "failure" not in row}
        missing = [case.name for case in asked(name, target, book, quick) if case.name not in rows]
        found.append(complete(f"{name}: every case without failure", missing))
        claims = [] if target.tiny else stage_of(name).claims(rows)
        found += [claim for claim in claims if claim.holds is not None or not quick]
    return found


def table(stages: Sequence[str], book: Book) -> str:
    """A line for each row."""
    lines = []
    for name in stages:
        stage = stage_of(name)
        lines.append(f"\n{name}: {stage.summary}")
        for case, row in book.rows(name).items():
            lines.append(f"  {case:60} {row.get('failure') or stage.line(row)}")
    return "\n".join(lines)


def here(target: Target) -> Mapping[str, str] | None:
    """The GPU and the version of torch; None if there is no GPU."""
    import torch

    if not target.cuda:
        return {"gpu": "none", "torch": torch.__version__}
    if not torch.cuda.is_available():
        return None
    return {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}


def newest(path: Path) -> Mapping[str, str] | None:
    """The GPU and the version of torch of the last row of a file."""
    rows = store.read(path)
    return {key: rows[-1][key] for key in ("gpu", "torch")} if rows else None


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = benchmark_parser(__doc__, "some cases of each stage, at most five minutes")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"of {', '.join(STAGES)}")
    parser.add_argument("--minutes", type=float, default=9.0, help="of a stage, at most")
    parser.add_argument("--rows", type=Path, default=None, help="file of the rows, or its folder")
    parser.add_argument("--ten-minutes", action="store_true", help="the most proof in ten minutes")
    parser.add_argument("--seconds", type=float, default=595.0, help="for --ten-minutes")
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes on the CPU")
    found = parser.parse_args(given)
    if wrong := [name for name in found.stages if name not in STAGES]:
        parser.error(f"a stage is one of {', '.join(STAGES)}; got {wrong[0]!r}")
    return found


def main(given: Sequence[str] | None = None) -> int:
    options = arguments(given)
    target = Target("cpu", tiny=True) if options.rehearse else Target()
    if options.rows and not options.rows.suffix:
        options.rows.mkdir(parents=True, exist_ok=True)
        options.rows /= ROWS.name
    stored = options.rows or (None if options.rehearse or options.quick else ROWS)
    machine = newest(stored or ROWS) if options.table else here(target)
    if machine is None:
        print("NOT RUN: there is no GPU here, and no row of one in", stored or ROWS)
        return 0
    book = Book(ROWS if options.table and stored is None else stored, machine)
    stages = options.stages or STAGES
    print(f"{machine['gpu']}, torch {machine['torch']}")
    if options.ten_minutes:
        return _ten_minutes.run(target, book, options.seconds, book.path and book.path.parent)
    for name in () if options.table else stages:
        begun = time.monotonic()
        print(f"{name}: {stage_of(name).summary}", flush=True)
        cases = asked(name, target, book, options.quick)
        left = run_stage(name, cases, target, book, 60 * options.minutes)
        print(f"  {time.monotonic() - begun:.0f} s")
        if left:
            print(f"  {len(left)} cases are left: run the same command again", flush=True)
    print(table(stages, book))
    status = conclude(judged(stages, target, book, options.quick))
    return status if options.check else 0


if __name__ == "__main__":
    sys.exit(main())
