"""The verbs before a sweep: init, speed, launch, workloads and doctor."""

import os
import signal
import subprocess
import tempfile
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Final

import click
import yaml

from automl import sweeps
from automl.config import load
from automl.config.source import WrittenConfig
from automl.config.template import file_of, for_command, read_wandb
from automl.core import parse_duration
from automl.core.arguments import compact_json
from automl.core.text import memory, number
from automl.errors import AutomlError, UsageError
from automl.ledger import Ledger
from automl.ledger.database import refuse_password
from automl.report.recommendation import recommended
from automl.report.record import Record
from automl.report.terminal import view
from automl.workflows import slurm as job
from automl.workflows.doctor import examine, shown
from automl.workflows.speed import REPORTS, Measured, measured, prepare, settings_to_try
from workers.command.goal_proposals import PrintedMetric, printed_metrics
from workers.functions.numbers import SpeedProbe
from workers.protocol import Params
from workers.workloads import WORKLOADS
from workers.workloads._public_data import DATASETS
from workers.workloads._public_data import fetch as fetch_files

from . import INTERRUPTED, NO_SUCCESS
from .common import (
    Program,
    ProgramVerb,
    config_arguments,
    dispatching,
    draw,
    draw_table,
    emit,
    given_settings,
    json_option,
    load_trained,
    named,
    objective_option,
    read_by,
    say,
    setting,
    store_option,
)

SECONDS: Final = 20.0  # that a command is run, to see what it prints
MAX_CHARACTERS: Final = 1 << 20
COLUMNS: Final = ("items/s", "peak memory", "of the best", "probes")


@click.command(cls=ProgramVerb)
@click.option(
    "--from",
    "source",
    metavar="FILE",
    help="The YAML file of `wandb sweep`. It is read as data: nothing in it is run.",
)
@click.option("--no-run", is_flag=True, help="Do not run the command; guess the goal.")
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    help="File to write, '-' to print it.  [default: NAME.yaml]",
)
def init(
    output: str | None,
    program: Program | None,
    source: str | None,
    no_run: bool,
) -> None:
    """Write a commented configuration for a COMMAND.

    Or make one of a sweep of Weights & Biases, and say what could not be carried over.

    The numbers among the options of a command become parameters, with a range around each. The
    command is run for at most 20 seconds, to see which metrics it prints; if it fails, nothing is
    written.

    \b
    Examples:
      automl init -- python train.py --lr 0.001 --width 64
      automl init --from sweep.yaml -o mine.yaml
    """
    if (program is None) == (source is None):
        raise UsageError(
            "name a command after --, or a sweep of Weights & Biases with --from; for a workload, "
            "begin with a file of configs/"
        )
    default = f"{Path(source or '').stem}.automl.yaml"
    if program is not None:
        default = file_of(program.arguments)
    path = Path(output if output and output != "-" else default)
    shown = click.format_filename(path)  # a name that is no UTF-8 cannot be in the file
    if output != "-" and path.exists():
        raise UsageError(f"{path} exists already; name another file with --output")
    if program is not None:
        for_command(program.arguments, shown)  # refuses one without numbers before it is run
        metric = None if no_run else next(iter(printed_by(program)), None)
        goal = f"the goal is to {metric.goal}" if metric else "wrote a guess"
        say(f"{goal}: adapt `goals` and `reports` if another metric counts", err=True)
        text = for_command(program.arguments, shown, metric)
    else:
        found = read_wandb(Path(source or ""))
        text = found.text(click.format_filename(source or ""), shown)
        for note in found.notes:
            say(f"note: {note}", err=True)
    if output == "-":
        click.echo(text, nl=False)
        return
    path.write_text(text, encoding="utf-8")
    click.echo(f"wrote {shown}; check it, then run: automl sweep {shown}")


def printed_by(program: Program) -> list[PrintedMetric]:
    """The metrics that a command prints, the best to tune by first.

    Runs it where automl was typed until it ends or time is up.

    Raises:
        AutomlError: it has failed.
    """
    say(f"runs the command for at most {SECONDS:.0f} s, to see what it prints", err=True)
    with tempfile.TemporaryDirectory() as folder:
        places = {name: str(Path(folder, name)) for name in ("PARAMS", "REPORTS", "STOP")}
        Path(places["PARAMS"]).write_text("{}")
        places |= {"TRIAL": "0", "SEED": "0", "CHECKPOINT_DIR": folder, "TRIAL_DIR": folder}
        environment = {f"AUTOML_{name}": value for name, value in places.items()}
        printed = Path(folder, "printed")
        with printed.open("wb") as output:
            process = subprocess.Popen(
                program.arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        try:
            with suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS)
        finally:
            status = process.poll()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        with printed.open(errors="replace") as file:
            lines = file.read(MAX_CHARACTERS).splitlines()
    found = printed_metrics(lines)
    last = " | ".join(lines[-3:]) or "nothing"
    if status:
        raise AutomlError(
            f"the command ended with exit status {status}: {last}. Mend it, or leave this run out "
            "(init --no-run, ab --metric NAME)"
        )
    if not found:
        say(f"the command printed no metric that is known: {last}", err=True)
    return found


@click.command(cls=ProgramVerb)
@config_arguments
@objective_option
@click.option(
    "--updates",
    type=click.IntRange(1),
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
    spec = load(config, overrides, objective=objective is not None, command=command).spec
    objective, program, _ = named(spec.origin, objective, program)
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
    emit([vars(one) for one in found]) if as_json else _show(found)
    status = INTERRUPTED if snapshot.state == "interrupted" else 0
    if not found or found[0].failure:
        messages = [trial.message for trial in snapshot.trials if trial.failure]
        say(f"no probe has succeeded: {messages[0] if messages else 'time was up'}", err=True)
        return status or NO_SUCCESS
    if write is not None:
        _write(config, Path(write), found[0].params, list(spec.space.parameters))
    return status


def _write(config: str, path: Path, params: Params, tuned: list[str]) -> None:
    data = WrittenConfig.of_file(Path(config)).data
    space = data.get("space")
    entries = dict(space) if isinstance(space, dict) else dict.fromkeys(tuned, "auto")
    data["space"] = entries | {name: [value] for name, value in params.items()}
    path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    say(f"wrote {path}", err=True)


def _show(found: list[Measured]) -> None:
    names = list(dict.fromkeys(name for one in found for name in one.params))
    rows = [
        [
            *(number(one.params[name]) if name in one.params else "-" for name in names),
            one.failure.replace("_", " ") if one.failure else number(one.items_per_second),
            memory(one.peak_memory_bytes),
            f"{one.share_of_best:.0%}",
            str(one.probes),
        ]
        for one in found
    ]
    if rows:
        draw_table([*names, *COLUMNS], rows, COLUMNS)
    if found and not found[0].failure:
        draw("\nthe recommended, for a configuration:")
        lines = [f"  {name}: [{compact_json(value)}]" for name, value in found[0].params.items()]
        say("\n".join(["space:", *lines]))


@click.group()
def launch() -> None:
    """Run a sweep as a job of Slurm.

    The job starts Ray on its nodes and runs the sweep. If the store has a sweep of that name, the
    job goes on with it: a job that was interrupted continues when it runs again.

    \b
    Example:
      automl launch slurm configs/nmt.yaml --nodes 4 --gpus-per-node 8 --time 8:00:00
    """


@launch.command(
    cls=ProgramVerb,
    parts=("flags", "program"),
    usage="[-- SBATCH_OPTION... [-- COMMAND [ARG]...]]",
)
@config_arguments
@click.option("--name", metavar="NAME", help="Name of the sweep.  [default: the configuration's]")
@setting("trials")
@setting("budget")
@setting("seed")
@setting("store")
@objective_option
@click.option("--dry-run", is_flag=True, help="Print the job and submit nothing.")
@json_option
@click.option("--nodes", metavar="N", type=click.IntRange(1), default=1, show_default=True)
@click.option("--gpus-per-node", metavar="N", type=click.IntRange(0), default=0, show_default=True)
@click.option(
    "--cpus-per-node",
    metavar="N",
    type=click.IntRange(1),
    help="Cores of each node.  [default: whole nodes]",
)
@click.option(
    "--time",
    metavar="TIME",
    help="Limit of one run of the job, as sbatch takes it: 8:00:00 or 2-12 (days and hours).",
)
@click.option(
    "--setup",
    metavar="LINE",
    multiple=True,
    help="Line of bash that runs first, such as 'module load cuda'; may be repeated.",
)
def slurm(
    config: str,
    overrides: tuple[str, ...],
    name: str | None,
    objective: str | None,
    dry_run: bool,
    as_json: bool,
    nodes: int,
    gpus_per_node: int,
    cpus_per_node: int | None,
    time: str | None,
    setup: tuple[str, ...],
    flags: Program | None,
    program: Program | None,
    **settings: str | None,
) -> None:
    """Submit a batch job that starts Ray on its nodes and runs the sweep there.

    Ray's head and the controller run on the first node; all nodes run trials. Before its time limit
    the job saves its trials, requeues itself and goes on, until the sweep is finished. The current
    folder and the store must be on a disk that all nodes share, or the store be a database.

    \b
    Examples:
      automl launch slurm configs/nmt.yaml --nodes 4 --gpus-per-node 8 --time 8:00:00
      automl launch slurm configs/nmt.yaml --nodes 2 --time 2-0 --dry-run
      automl launch slurm mine.yaml --objective train.py:objective -- --constraint=h100 --mem=0
      automl launch slurm mine.yaml --time 4:00:00 -- --account=me -- python train.py --lr={lr}
    """
    command = "" if program is None else str(program)
    given = [*overrides, *given_settings({"name": name, **settings})]
    loaded = load(config, given, objective=objective is not None, command=command)
    refuse_password(loaded.store)
    for note in loaded.notes:
        say(note, err=True)
    name = loaded.spec.name
    passed = {"name": name, **settings, "store": loaded.store, "objective": objective}
    options = [f"--{key}={text}" for key, text in passed.items() if text is not None]
    script = job.script(
        name,
        ["sweep", config, *overrides, "--resume", *options],
        () if program is None else ("--", *program.arguments),
        {"nodes": nodes, "gpus-per-node": gpus_per_node, "time": time},
        cpus_per_node,
        setup,
        () if flags is None else flags.arguments,
    )
    if dry_run:
        return emit({"sweep": name, "script": script}) if as_json else say(script)
    number = job.submit(script)
    log = job.log_of(name).replace("%j", number)
    if as_json:
        return emit({"sweep": name, "store": loaded.store, "job": number, "log": log})
    return say(f"job {number} runs the sweep {name}; its messages: {log}")


@click.command()
@store_option
@json_option
def doctor(store: str, as_json: bool) -> None:
    """Show hardware, packages and backends, and what precisions and strategies need.

    \b
    Example:
      automl doctor
    """
    found = examine(store)
    return emit(found) if as_json else draw(shown(found))


@click.command()
@click.option("--fetch", metavar="NAME", help="Data set to fetch.")
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@json_option
def workloads(fetch: str | None, folder: Path | None, as_json: bool) -> None:
    """List the workloads with their goals, and the data sets that --fetch can get.

    A data set is fetched from its official source. Its checksum is checked.

    \b
    Examples:
      automl workloads
      automl workloads --fetch imdb data/imdb
    """
    if fetch is not None:
        target = folder or Path("data") / fetch
        files = fetch_files(fetch, target, _told)
        if as_json:
            return emit({"name": fetch, "dir": str(target), "files": [str(path) for path in files]})
        return say(f"{fetch} is in {target}: {', '.join(path.name for path in files)}")
    if folder is not None:
        raise UsageError(f"{folder} is the folder of a data set: name the set with --fetch NAME")
    known = [WORKLOADS.get(name) for name in WORKLOADS.names()]
    if as_json:
        objects = [{"name": w.name, "summary": w.summary, "goals": list(w.goals)} for w in known]
        return emit(objects)
    rows = [[w.name, ", ".join(w.goals), w.summary] for w in known]
    draw_table(["workload", "goals", "summary"], rows)
    rows = [[name, dataset.summary, dataset.use] for name, dataset in DATASETS.items()]
    return draw_table(["data set", "what it is", "for"], rows)


def _told(file: str, done: int, total: int) -> None:
    if done == total:
        say(f"{file}: {done / 1e6:.1f} MB", err=True)
