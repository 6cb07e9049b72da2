"""`automl speed CONFIG`: the fastest settings that cannot change the result."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from automl.config.settings_in import as_yaml, with_settings
from automl.core import parse_duration
from automl.core.text import memory, number
from automl.errors import UsageError
from automl.workflows.speed import REPORTS, Measured, left_out, measured, prepare, settings_to_try

from . import INTERRUPTED, NO_SUCCESS
from .common import (
    config_arguments,
    dispatching,
    draw,
    draw_table,
    emit,
    json_option,
    objective_option,
    opened,
    read_by,
    say,
    store_option,
    whole,
)
from .program import Program, ProgramVerb, load_trained, named

if TYPE_CHECKING:
    from automl.core import Snapshot, SweepSpec
    from workers.protocol import Params

COLUMNS = ["items/s", "noise", "peak memory", "of the best", "probes"]


@click.command(
    cls=ProgramVerb, short_help="Find the fastest settings that cannot change the result."
)
@config_arguments
@click.option(
    "--sweep",
    "best_of",
    metavar="NAME",
    help="Take what affects quality from the best trial of this sweep.",
)
@store_option
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
    help="Put the fastest settings into this configuration; a new FILE begins as a copy of CONFIG.",
)
@json_option
@dispatching()
def speed(
    config: str,
    overrides: tuple[str, ...],
    best_of: str | None,
    store: str,
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

    Parameters that affect quality stay at their defaults, or as the best trial of --sweep has them.
    Each probe leaves out a warm-up and measures some windows; one that runs out of memory counts as
    an answer. A function or a program is measured by the steps between its reports.

    \b
    Examples:
      automl speed configs/nmt.yaml
      automl speed configs/nmt.yaml --sweep nmt --time 2m --write fast.yaml
      automl speed mine.yaml --objective train.py:objective
      automl speed mine.yaml -- python train.py {params}
    """
    from automl.config import load

    command = "" if program is None else str(program)
    spec = load(config, overrides, objective=objective is not None, command=command).spec
    objective, program, _ = named(spec, objective, program)
    if program is not None and spec.ranks != 1:
        raise UsageError(f"a program is probed on one rank, got ranks: {spec.ranks}")
    target = _target(config, write)
    quality = _best_of(best_of, store) if best_of else {}
    unknown = [name for name in quality if name not in spec.space.parameters]
    if unknown:
        raise UsageError(f"--sweep {best_of} tuned {unknown[0]}, which {config} does not")
    found, snapshot = run_probes(
        spec,
        quality,
        load_trained(spec, objective, program),
        seconds=time,
        updates=updates,
        dispatcher=dispatcher or "auto",
        ray_address=ray_address,
        on_change=_Progress(),
    )
    emit([one.to_dict() for one in found]) if as_json else _show(found, snapshot)
    if not found or found[0].failure:
        _say_why(snapshot)
        return INTERRUPTED if snapshot.state == "interrupted" else NO_SUCCESS
    if target is not None and write is not None:
        own, command = objective is not None, spec.command
        _write(target, Path(write), found[0].params, own=own, command=command)
    return INTERRUPTED if snapshot.state == "interrupted" else 0


def run_probes(
    spec: SweepSpec,
    quality: Params,
    objective: Callable[[Any], Any] | None,
    *,
    seconds: float,
    updates: int | None = None,
    **run_options: Any,
) -> tuple[list[Measured], Snapshot]:
    """Try settings of speed and memory in short trials, in a store that is deleted afterwards.

    Args:
        spec, quality, seconds: see `automl.workflows.speed.prepare`.
        objective: a function or a command; None for the workload of the spec.
        updates: measured in a probe of a workload, or reports of an objective; None for a default.
        run_options: of `automl.sweeps.run`.

    Returns:
        The measurements, the recommended settings first, and the sweep of probes.

    Raises:
        UsageError: there is nothing to try, or the objective cannot be probed.
    """
    from automl import sweeps
    from automl.ledger import Ledger
    from automl.report.recommendation import recommended
    from automl.report.record import Record
    from workers.functions.speed import SpeedProbe

    probed = None if objective is None else SpeedProbe(objective, updates or REPORTS)
    names = settings_to_try(spec.space)
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(Ledger.open(folder, create=True)) as ledger,
    ):
        probes = prepare(ledger, spec, quality, seconds, updates)
        snapshot = sweeps.run(probes, ledger=ledger, objective=probed, resume=True, **run_options)
    best = recommended(Record.of(snapshot))
    return measured(snapshot.trials, names, best.params if best else None), snapshot


class _Progress:
    """Says on standard error how many probes have ended."""

    def __init__(self) -> None:
        self._said = 0

    def __call__(self, snapshot: Snapshot) -> None:
        """Look at the sweep of probes."""
        ended = sum(trial.state.finished for trial in snapshot.trials)
        if ended > self._said:
            self._said = ended
            say(f"{ended} probes have ended", err=True)


def _best_of(sweep: str, store: str) -> Params:
    from automl.workflows.export import chosen

    with opened(store) as ledger:
        return chosen(ledger, sweep, None).params


def _target(config: str, write: str | None) -> str | None:
    """The text that gets the settings: the file that is named, or else the configuration."""
    if write is None:
        return None
    file = Path(write) if Path(write).exists() else Path(config)
    text = file.read_text(encoding="utf-8")
    if with_settings(text, {}) is None:
        raise UsageError(
            f"--write: {file} has no 'space:' with an entry in each line, where the settings go"
        )
    return text


def _write(text: str, path: Path, params: Params, *, own: bool, command: str) -> None:
    """Write the configuration with the settings, if it is still a right one."""
    from automl.config import load
    from automl.errors import ConfigError

    changed = with_settings(text, params) or text
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as draft:
        draft.write(changed)
        draft.flush()
        try:
            load(draft.name, objective=own, command=command)
        except ConfigError as error:
            raise UsageError(
                f"--write: the settings do not fit into the configuration, nothing was written; "
                f"put them in by hand:\n{as_yaml(params)}"
            ) from error
    path.write_text(changed, encoding="utf-8")
    say(f"wrote {path}", err=True)


def _show(found: Sequence[Measured], snapshot: Snapshot) -> None:
    names = list(dict.fromkeys(name for one in found for name in one.params))
    rows = []
    for one in found:
        values = [number(one.params[name]) if name in one.params else "-" for name in names]
        speeds = [
            number(one.items_per_second),
            f"{one.noise:.0%}",
            memory(one.peak_memory_bytes),
            f"{one.share_of_best:.0%}",
            str(one.probes),
        ]
        failed = [
            (one.failure or "").replace("_", " "),
            "-",
            memory(one.peak_memory_bytes),
            "-",
            str(one.probes),
        ]
        rows.append(values + (failed if one.failure else speeds))
    if rows:
        draw_table([*names, *COLUMNS], rows, COLUMNS)
    if words := left_out(found, snapshot):
        draw(f"\n{words}")
    if found and not found[0].failure:
        near = [one for one in found if one.share_of_best >= 1 - max(one.noise, found[0].noise)]
        if len(near) > 1:
            draw(f"\n{len(near)} settings are as fast, within their noise; a longer --time, or a")
            draw("machine that does nothing else, may tell them apart")
        draw("\nthe recommended, for a configuration:")
        say(as_yaml(found[0].params))


def _say_why(snapshot: Snapshot) -> None:
    messages: list[Any] = [trial.message for trial in snapshot.trials if trial.failure]
    say(f"no probe has succeeded: {messages[0] if messages else 'time was up'}", err=True)
