"""Is everything for CUDA right on this GPU? Run it on a machine with one.

    python3 benchmarks/training/gpu.py --ten-minutes --rows DIR    the most proof in `--seconds`
    python3 benchmarks/training/gpu.py knobs failures              these stages
    python3 benchmarks/training/gpu.py --quick                     some cases; nothing is stored
    python3 benchmarks/training/gpu.py --table [--check]           the stored rows
    python3 benchmarks/training/gpu.py --rehearse                  on the CPU, in tiny sizes

Correctness is measured in four processes side by side; failures, the cost of an attempt, knobs and
the busy share then have the GPU alone. What comes first matters most. A case that fails is a row,
and the rest goes on. Every row is stored at once, in `--rows`, a folder or a file. So an
interrupted run goes on with the same command; cases that have failed run again. Without
`--ten-minutes` there are 30 of them. The last line is the verdict. Without a GPU and without rows
nothing is measured: it says "NOT RUN" and ends with status 0. It needs torch and the packages that
the workloads import, but no Ray and no SQLAlchemy.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[2])  # the checkout need not be installed

from benchmarks.common import store  # noqa: E402
from benchmarks.common.options import benchmark_parser  # noqa: E402
from benchmarks.training.gpu_stages._case import Target  # noqa: E402
from benchmarks.training.gpu_stages._runner import Book  # noqa: E402
from benchmarks.training.gpu_stages._ten_minutes import STAGES, run  # noqa: E402

ROWS = store.RESULTS / "gpu.jsonl"


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
    parser.add_argument("--rows", type=Path, default=None, help="file of the rows, or its folder")
    parser.add_argument("--ten-minutes", action="store_true", help="the most proof in ten minutes")
    parser.add_argument("--seconds", type=float, default=None, help="for all of it")
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes on the CPU")
    found = parser.parse_args(given)
    if wrong := [name for name in found.stages if name not in STAGES]:
        parser.error(f"a stage is one of {', '.join(STAGES)}; got {wrong[0]!r}")
    if found.rows and not found.rows.suffix:
        found.rows.mkdir(parents=True, exist_ok=True)
        found.rows /= ROWS.name
    return found


def main(given: Sequence[str] | None = None) -> int:
    options = arguments(given)
    target = Target("cpu", tiny=True) if options.rehearse else Target()
    stored = options.rows or (None if options.rehearse or options.quick else ROWS)
    machine = newest(stored or ROWS) if options.table else here(target)
    if machine is None:
        print("NOT RUN: there is no GPU here, and no row of one in", stored or ROWS)
        return 0
    book = Book(ROWS if options.table and stored is None else stored, machine)
    print(f"{machine['gpu']}, torch {machine['torch']}")
    seconds = 0.0 if options.table else options.seconds or (595.0 if options.ten_minutes else 1800)
    status = run(target, book, seconds, options.stages or STAGES, quick=options.quick)
    return status if options.check or options.ten_minutes else 0


if __name__ == "__main__":
    sys.exit(main())
