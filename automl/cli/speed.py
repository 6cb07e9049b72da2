"""`automl speed CONFIG`: the fastest settings that cannot change the result."""

import tempfile
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path

import click
import yaml

from automl import sweeps
from automl.config import load
from automl.config.source import WrittenConfig
from automl.core import Snapshot, parse_duration
from automl.core.arguments import compact_json
from automl.core.text import memory, number
from automl.errors import UsageError
from automl.ledger import Ledger
from automl.report.recommendation import recommended
from automl.report.record import Record
from automl.report.terminal_view import view
from automl.workflows.speed import REPORTS, Measured, left_out, measured, prepare, settings_to_try
from workers.functions.speed import SpeedProbe
from workers.protocol import Params

from . import INTERRUPTED, NO_SUCCESS
from .common import (
    config_arguments,
    dispatching,
    draw,
    draw_table,
    emit,
    json_option,
    objective_option,
    read_by,
    say,
    whole,
)
from .program import Program, ProgramVerb, load_trained, named

COLUMNS = ["items/s", "noise", "peak memory", "of the best", "probes"]


@click.command(cls=ProgramVerb)
@config_arguments
@objective_option
@click.option(
    "--updates",
    type=whole(1),
    metavar="N",
    help="Updates to measure in a probe of a workload, reports of a function or a program.  "
    "[default: 20 updates, 4 reports]",
)
@click.option(
    "--time",
    metavar="TIME",
    default="3m",
    show_default=True,
    callback=read_by(parse_duration),
    help="Time for all probes.",
)
@click.option(
    "--write",
    metavar="FILE",
    help="Write CONFIG with the fastest settings to this file; comments are not kept.",
)
@json_option
@dispatching()
def speed(
    config: str,
    overrides: tuple[str, ...],
    objective: str | None,
    program: Program | None,
    updates: int | None,
    time: float,
    write: str | None,
    as_json: bool,
    dispatcher: str | None,
    ray_address: str | None,
) -> int:
    """Find the fastest settings that cannot change the result, by trials of seconds.

    Parameters that affect quality stay at their defaults.
    Each probe leaves out a warm-up and measures some windows; one that runs out of memory counts as
    an answer. A function or a program is measured by the steps between its reports.

    \b
    Examples:
      automl speed configs/nmt.yaml
      automl speed configs/nmt.yaml --time 2m --write fast.yaml
      automl speed mine.yaml --objective train.py:objective
      automl speed mine.yaml -- python train.py {params}
    """
    command = "" if program is None else str(program)
    checked = partial(load, config, objective=objective is not None, command=command)
    spec = checked(overrides).spec
    objective, program, _ = named(spec, objective, program)
    if program is not None and spec.ranks != 1:
        raise UsageError(f"a program is probed on one rank, got ranks: {spec.ranks}")
    names = settings_to_try(spec.space)
    function = load_trained(spec, objective, program)
    probed = None if function is None else SpeedProbe(function, updates or REPORTS)
    shown = nullcontext() if as_json else view()
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(Ledger.open(folder, create=True)) as ledger,
        shown as show,
    ):
        probes = prepare(ledger, spec, time, updates)
        snapshot = sweeps.run(
            probes,
            ledger=ledger,
            objective=probed,
            dispatcher=dispatcher or "auto",
            ray_address=ray_address,
            on_change=show,
            resume=True,
        )
    best = recommended(Record.of(snapshot))
    found = measured(snapshot.trials, names, best.params if best else None)
    emit([one.to_dict() for one in found]) if as_json else _show(found, snapshot)
    status = INTERRUPTED if snapshot.state == "interrupted" else 0
    if not found or found[0].failure:
        messages = [trial.message for trial in snapshot.trials if trial.failure]
        say(f"no probe has succeeded: {messages[0] if messages else 'time was up'}", err=True)
        return status or NO_SUCCESS
    if write is not None:
        fastest = [
            f"space.{name}=[{compact_json(value)}]" for name, value in found[0].params.items()
        ]
        checked([*overrides, *fastest])
        _write(config, Path(write), found[0].params, list(spec.space.parameters))
    return status


def _write(config: str, path: Path, params: Params, tuned: list[str]) -> None:
    """Write a configuration with the settings."""
    data = WrittenConfig.of_file(Path(config)).data
    space = data.get("space")
    entries = dict(space) if isinstance(space, dict) else dict.fromkeys(tuned, "auto")
    data["space"] = entries | {name: [value] for name, value in params.items()}
    path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    say(f"wrote {path}", err=True)


def _show(found: list[Measured], snapshot: Snapshot) -> None:
    names = list(dict.fromkeys(name for one in found for name in one.params))
    rows = [
        [
            *(number(one.params[name]) if name in one.params else "-" for name in names),
            one.failure.replace("_", " ") if one.failure else number(one.items_per_second),
            f"{one.noise:.0%}",
            memory(one.peak_memory_bytes),
            f"{one.share_of_best:.0%}",
            str(one.probes),
        ]
        for one in found
    ]
    if rows:
        draw_table([*names, *COLUMNS], rows, COLUMNS)
    if words := left_out(found, snapshot):
        draw(f"\n{words}")
    if found and not found[0].failure:
        draw("\nthe recommended, for a configuration:")
        lines = [f"  {name}: [{compact_json(value)}]" for name, value in found[0].params.items()]
        say("\n".join(["space:", *lines]))
