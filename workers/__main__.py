"""Training one workload from a shell: `python -m workers sentiment learning_rate=2e-3`."""

import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from search_spaces.errors import AutomlError
from search_spaces.hardware import detect

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
        words = given[1:] if given[:1] == ["train"] else given
        return int(_train.main(words, f"python -m workers {name}", standalone_mode=False, obj=name))
    except (AutomlError, click.ClickException) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


@click.command(epilog="KEY is a parameter, an option or data.NAME; VALUE is JSON or text.")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--out", help="folder of the run (default: runs/NAME)")
@click.option("--export", "target", metavar="DIR", help="write the trained model there at the end")
@click.option("--resume", is_flag=True, help="continue from the newest checkpoint in --out")
@click.option("--seed", default=0, show_default=True)
@click.option("--threads", default=1, show_default=True, help="CPU threads a rank")
@click.option("--gpus", default=0.0, show_default=True, help="GPUs a rank")
@click.pass_obj
def _train(
    name: str, /, settings: Sequence[str], out: str | None, target: str | None, **given: Any
) -> int:
    """Train the workload with its defaults, changed by KEY=VALUE."""
    params, data, fixed = _checked(name, settings)
    folder = str(Path(out or f"runs/{name}").resolve())
    ranks = num_ranks(params, fixed)
    assignment = Assignment(
        "alone", 0, 1, params, name, folder, data, fixed, num_ranks=ranks, **given
    )
    outcome = _run(assignment)
    ending = {"ending": outcome.ending, "metrics": dict(outcome.metrics)}
    print(json.dumps(ending, sort_keys=True), flush=True)
    if outcome.failure:
        print(f"{outcome.failure}: {outcome.message}", file=sys.stderr)
    elif target and outcome.ending is Ending.COMPLETED:
        workload = WORKLOADS.get(name)(params, data, fixed, seed=assignment.seed)
        files = export(workload, Path(folder), Path(target), outcome.metrics)
        for file, content in files.items():
            print(f"{Path(target) / file}: {content}", flush=True)
    return _STATUS[outcome.ending]


def _checked(
    name: str, settings: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Parameters, data and fixed options; checks everything before anything is written."""
    kind = WORKLOADS.get(name)
    space = kind.space(detect())
    params, data, fixed = dict(space.default() or {}), {}, {}
    for text in settings:
        key, _, words = text.partition("=")
        try:
            value = json.loads(words)
        except ValueError:
            value = words
        if key.startswith("data."):
            data[key.removeprefix("data.")] = value
        elif key not in space.parameters and key in {*trainer_options(), *kind.defaults}:
            fixed[key] = value
        else:
            params[key] = value
    params = dict(space.accept(params))
    kind.check(data, fixed)
    return params, data, fixed


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
    sys.exit(main())
