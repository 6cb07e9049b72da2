"""Training one workload from a shell: `python -m workers sentiment learning_rate=2e-3`."""

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from search_spaces.errors import AutomlError, UsageError
from search_spaces.hardware import detect
from search_spaces.plugins import nearest

from .context import Context
from .export import export
from .parallel import num_ranks
from .protocol import Assignment, Ending, Outcome, Report, StopRequest
from .run import run
from .runtime.processes import run_gang
from .training import trainer_options
from .workloads import WORKLOADS

_STATUS = {
    Ending.COMPLETED: 0,
    Ending.STOPPED: 0,
    Ending.PAUSED: 130,
    Ending.INTERRUPTED: 130,
    Ending.FAILED: 1,
}
_USAGE = """usage: python -m workers NAME [train] [KEY=VALUE ...]    train a workload
       python -m workers NAME COMMAND ...                another command of a workload
       python -m workers NAME --help

NAME is one of {names}."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status.

    0 done, 1 failed, 2 wrong usage or data, 130 interrupted (a checkpoint was written: continue it
    with --resume).
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help"):
        print(_USAGE.format(names=", ".join(WORKLOADS.names())))
        return 0 if given else 2
    try:
        name = WORKLOADS.require(given.pop(0))
        command = WORKLOADS.get(name).commands().get(given[0]) if given else None
        if command is not None:
            command(given[1:])
            return 0
        return _train(name, given[1:] if given[:1] == ["train"] else given)
    except AutomlError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _train(name: str, arguments: Sequence[str]) -> int:
    given = _parser(name).parse_intermixed_args(arguments)
    assignment = _assignment(name, given)
    outcome = _run(assignment)
    ending = {"ending": outcome.ending, "metrics": dict(outcome.metrics)}
    print(json.dumps(ending, sort_keys=True), flush=True)
    if outcome.failure:
        print(f"{outcome.failure}: {outcome.message}", file=sys.stderr)
    elif given.export and outcome.ending is Ending.COMPLETED:
        kind, a = WORKLOADS.get(name), assignment
        workload = kind(a.params, a.data, a.fixed, seed=a.seed)
        files = export(workload, Path(a.folder), Path(given.export), outcome.metrics)
        for file, content in files.items():
            print(f"{Path(given.export) / file}: {content}", flush=True)
    return _STATUS[outcome.ending]


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m workers {name}",
        description=f"Train the workload {name} with its defaults, changed by KEY=VALUE.",
        epilog="KEY is a parameter, an option or data.NAME; VALUE is JSON or text.",
    )
    add = parser.add_argument
    add("settings", nargs="*", metavar="KEY=VALUE", help="as batch_size=128 data.name=builtin")
    add("--out", default=f"runs/{name}", help="folder of the run (default: %(default)s)")
    add("--export", metavar="DIR", help="write the trained model there at the end")
    add("--resume", action="store_true", help="continue from the newest checkpoint in --out")
    add("--seed", type=int, default=0, help="(default: 0)")
    add("--threads", type=int, default=1, help="CPU threads a rank (default: 1)")
    add("--gpus", type=float, default=0.0, help="GPUs a rank (default: 0)")
    return parser


def _assignment(name: str, given: argparse.Namespace) -> Assignment:
    """The assignment of the command line; checks everything before anything is written."""
    kind = WORKLOADS.get(name)
    space = kind.space(detect())
    params = dict(space.default() or {})
    data: dict[str, Any] = {}
    fixed: dict[str, Any] = {}
    for text in given.settings:
        key, equals, words = text.partition("=")
        try:
            value = json.loads(words)
        except ValueError:
            value = words
        if equals and key.startswith("data."):
            data[key.removeprefix("data.")] = value
        elif equals and key in space.parameters:
            params[key] = value
        elif equals and key in (trainer_options().keys() | kind.defaults.keys()):
            fixed[key] = value
        else:
            hint = nearest(key, [*space.parameters, *kind.defaults])
            raise UsageError(f"a setting is KEY=VALUE, got {text!r}: {hint}")
    params = space.accept(params)
    kind.check(data, fixed)
    return Assignment(
        sweep="alone",
        trial=0,
        attempt=1,
        params=params,
        workload=name,
        folder=str(Path(given.out).resolve()),
        data=data,
        fixed=fixed,
        seed=given.seed,
        num_ranks=num_ranks(params, fixed),
        threads=given.threads,
        gpus=given.gpus,
        resume=given.resume,
    )


def _run(assignment: Assignment) -> Outcome:
    """Run it here, or on several processes; an interrupt asks it to pause."""
    requests: list[StopRequest] = []
    before = signal.signal(signal.SIGINT, lambda *_: requests.append(StopRequest.PAUSE))

    def requested() -> StopRequest | None:
        return requests[-1] if requests else None

    try:
        if assignment.num_ranks > 1:
            return run_gang(assignment, _print_report, requested)
        device = "cuda:0" if assignment.gpus else "cpu"
        return run(Context(assignment, _print_report, requested, device=device))
    finally:
        signal.signal(signal.SIGINT, before)


def _print_report(report: Report) -> None:
    values = " ".join(f"{key}={value:.4g}" for key, value in sorted(report.metrics.items()))
    print(f"step {report.step} after {report.seconds:.1f} s: {values}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
