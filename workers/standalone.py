"""Training one workload from a shell, without a sweep: `python -m workers.workloads.sentiment learning_rate=2e-3`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from search_spaces.errors import AutomlError, UsageError
from search_spaces.plugins import nearest

from .protocol import Assignment, Ending, Outcome, Report, StopRequest
from .training.settings import TRAINER_OPTIONS

_STATUS = {
    Ending.COMPLETED: 0,
    Ending.STOPPED: 0,
    Ending.PAUSED: 130,
    Ending.INTERRUPTED: 130,
    Ending.FAILED: 1,
}


def main(name: str, arguments: Sequence[str] | None = None) -> int:
    """Run the workload of that name as the command line says; returns the exit status.

    0 done, 1 failed, 2 wrong usage, 130 interrupted (a checkpoint was written: go on with --resume).
    """
    given = _parser(name).parse_intermixed_args(arguments)
    try:
        assignment = _assignment(name, given)
        outcome = _run(assignment)
        _say(
            json.dumps({"ending": outcome.ending, "metrics": dict(outcome.metrics)}, sort_keys=True)
        )
        if outcome.failure:
            print(f"{outcome.failure}: {outcome.message}", file=sys.stderr)
        elif given.export and outcome.ending is Ending.COMPLETED:
            _export(assignment, outcome, Path(given.export))
    except AutomlError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return _STATUS[outcome.ending]


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m workers.workloads.{name}",
        description=f"Train the workload {name} under one configuration: its defaults, changed by KEY=VALUE.",
        epilog="KEY is a parameter or an option of the workload, or data.NAME; VALUE is JSON, or else text.",
    )
    parser.add_argument(
        "settings", nargs="*", metavar="KEY=VALUE", help="such as batch_size=128 data.name=builtin"
    )
    parser.add_argument(
        "--out",
        default=f"runs/{name}",
        help="folder for checkpoints and logs (default: %(default)s)",
    )
    parser.add_argument(
        "--export", metavar="DIR", help="write the trained model there when it is done"
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on from the newest checkpoint in --out"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="CPU threads a rank (default: 1)")
    parser.add_argument("--gpus", type=float, default=0.0, help="GPUs a rank (default: 0)")
    return parser


def _assignment(name: str, given: argparse.Namespace) -> Assignment:
    """What is to be run; everything is checked before anything is written."""
    from search_spaces.hardware import detect

    from .parallel import num_ranks
    from .workloads import WORKLOADS

    kind = WORKLOADS.get(name)
    space = kind.space(detect())
    params, data, fixed = dict(space.default() or {}), {}, {}
    for text in given.settings:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"a setting is KEY=VALUE, got {text!r}")
        if key.startswith("data."):
            data[key.removeprefix("data.")] = _value(value)
        elif key in space.parameters:
            params[key] = _value(value)
        elif key in kind.defaults or key in TRAINER_OPTIONS:
            fixed[key] = _value(value)
        else:
            raise UsageError(
                f"unknown setting {key!r}: {nearest(key, [*space.parameters, *kind.defaults])}"
            )
    params = {key: value for key, value in params.items() if key in space.active(params)}
    missing = [key for key in space.active(params) if key not in params]
    params |= {key: space.parameters[key].middle() for key in missing}
    space.check(params)
    kind.check(data, fixed)
    folder, ranks = str(Path(given.out).resolve()), num_ranks(params, fixed)
    return Assignment(
        "alone",
        0,
        1,
        params,
        name,
        folder,
        data,
        fixed,
        given.seed,
        ranks,
        given.threads,
        given.gpus,
        given.resume,
    )


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _run(assignment: Assignment) -> Outcome:
    """Run it here, or on several processes; the first interrupt asks it to pause."""
    from .context import Context
    from .run import run
    from .runtime.processes import run_gang

    asked: list[StopRequest] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: asked.append(StopRequest.PAUSE))
    try:
        if assignment.num_ranks > 1:
            return run_gang(assignment, _print_report, lambda: asked[-1] if asked else None)
        device = "cuda:0" if assignment.gpus else "cpu"
        return run(
            Context(assignment, _print_report, lambda: asked[-1] if asked else None, device=device)
        )
    finally:
        signal.signal(signal.SIGINT, before)


def _print_report(report: Report) -> None:
    values = " ".join(f"{key}={value:.4g}" for key, value in sorted(report.metrics.items()))
    _say(f"step {report.step} after {report.seconds:.1f} s: {values}")


def _say(text: str) -> None:
    print(text, flush=True)


def _export(assignment: Assignment, outcome: Outcome, target: Path) -> None:
    from .export import export
    from .workloads import WORKLOADS

    kind = WORKLOADS.get(str(assignment.workload))
    workload = kind(assignment.params, assignment.data, assignment.fixed, seed=assignment.seed)
    for name, what in export(workload, Path(assignment.folder), target, outcome.metrics).items():
        _say(f"{target / name}: {what}")
