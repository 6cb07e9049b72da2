"""The verb that submits a sweep as a job of another system: `launch slurm`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from automl.errors import UsageError

from .common import (
    STORE,
    Decorator,
    config_arguments,
    emit,
    given_settings,
    json_option,
    objective_option,
    say,
    setting,
    whole,
)
from .program import Program, ProgramVerb

if TYPE_CHECKING:
    from automl.launch.slurm import SweepCommand

PASSED: Final = ("trials", "budget", "seed")  # settings that the job repeats
# Options in the order of the first fields of a job.
_SLURM: Final = (
    *("nodes", "time", "gpus_per_node", "cpus_per_node"),
    *("partition", "account", "grace", "requeues"),
)


class SlurmVerb(ProgramVerb):
    """A verb with options of sbatch behind the first `--`, and a command behind the second."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """With the options of sbatch and the command at the end."""
        pieces = super().collect_usage_pieces(ctx)
        return [*pieces[:-1], "[-- SBATCH_OPTION... [-- COMMAND [ARG]...]]"]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the options of sbatch out."""
        flags: list[str] = []
        if "--" in args:
            place = args.index("--")
            flags, rest = args[place + 1 :], []
            if "--" in flags:
                second = flags.index("--")
                flags, rest = flags[:second], flags[second:]
            args = args[:place] + rest
        left = super().parse_args(ctx, args)
        ctx.params["flags"] = tuple(flags)
        return left


@click.group()
def launch() -> None:
    """Run a sweep as a job of Slurm.

    The job starts Ray on its nodes and runs the sweep. If the store has a sweep of that name, the
    job goes on with it: a job that was interrupted continues when it runs again.

    \b
    Example:
      automl launch slurm configs/nmt.yaml --nodes 4 --gpus-per-node 8 --time 8:00:00
    """


def _count(name: str, help: str = "", default: int | None = 0, least: int = 0) -> Decorator:
    return click.option(
        f"--{name}", metavar="N", type=whole(least), default=default, show_default=True, help=help
    )


def _text(name: str, help: str = "", metavar: str = "NAME") -> Decorator:
    return click.option(f"--{name}", metavar=metavar, default="", help=help)


@launch.command(cls=SlurmVerb)
@config_arguments
@click.option("--name", metavar="NAME", help="Name of the sweep.  [default: the configuration's]")
@setting("trials")
@setting("budget")
@setting("seed")
@setting("store")
@objective_option
@click.option("--dry-run", is_flag=True, help="Print the job and submit nothing.")
@json_option
@_count("nodes", default=1, least=1)
@_count("gpus-per-node")
@_count("cpus-per-node", "Cores of each node.  [default: whole nodes]", None, 1)
@_text(
    "time",
    "Limit of one run of the job, as sbatch takes it: 8:00:00 or 2-12 (days and hours).",
    "TIME",
)
@_text("partition")
@_text("account")
@click.option(
    "--grace",
    metavar="SECONDS",
    type=whole(30),
    default=180,
    show_default=True,
    help="Time before the limit at which trials are saved and the job is requeued.",
)
@_count("requeues", "How often the job requeues itself at its time limit.", 50)
@click.option(
    "--setup",
    metavar="LINE",
    multiple=True,
    help="Line of bash that runs first, such as 'module load cuda'; may be repeated.",
)
def slurm(dry_run: bool, as_json: bool, **options: Any) -> None:
    """Submit a batch job that starts Ray on its nodes and runs the sweep there.

    Ray's head and the controller run on the first node; all nodes run trials. Before its time limit
    the job saves its trials, requeues itself and goes on, until the sweep is finished. The current
    folder and the store must be on a disk that all nodes share, or the store be a database.

    \b
    Examples:
      automl launch slurm configs/nmt.yaml --nodes 4 --gpus-per-node 8 --time 8:00:00
      automl launch slurm configs/nmt.yaml --nodes 2 --time 2-0 --dry-run
      automl launch slurm mine.yaml --objective train.py:objective -- --constraint=h100 --mem=0
      automl launch slurm mine.yaml --time 4:00:00 -- --qos=low -- python train.py --lr={lr}
    """
    from automl.launch.slurm import SlurmJob

    sweep = _checked_sweep(options)
    job = SlurmJob(sweep, Path.cwd(), *map(options.pop, _SLURM), **options)
    if dry_run:
        script = job.script()
        return emit({"sweep": sweep.name, "script": script}) if as_json else say(script)
    _tell_if_it_goes_on(sweep.name, sweep.store)
    number = job.submit()
    log = job.log.replace("%j", number)
    if as_json:
        return emit({"sweep": sweep.name, "store": sweep.store, "job": number, "log": log})
    return say(f"job {number} runs the sweep {sweep.name}; its messages: {log}")


def _checked_sweep(options: dict[str, Any]) -> SweepCommand:
    """The command of the sweep, after the checks of `automl sweep --dry-run`.

    Args:
        options: of the verb; those of the sweep are taken out.

    Raises:
        UsageError: the configuration, an override, or the store is wrong.
    """
    from automl.config import load
    from automl.launch.slurm import SweepCommand
    from automl.ledger.database import refuse_password

    config, overrides, objective = map(options.pop, ("config", "overrides", "objective"))
    program: Program | None = options.pop("program")
    names = ("name", "store", *PASSED)
    given = {name: text for name in names if (text := options.pop(name)) is not None}
    loaded = load(
        config,
        [*overrides, *given_settings(given)],
        objective=objective is not None,
        command="" if program is None else str(program),
    )
    refuse_password(loaded.store)
    for note in loaded.notes:
        say(note, err=True)
    passed = {name: text for name, text in given.items() if name in PASSED}
    passed |= {} if objective is None else {"objective": objective}
    behind: tuple[str, ...] = ()
    if program is not None:
        behind = ("--", *program.arguments)
    return SweepCommand(config, loaded.spec.name, loaded.store, overrides, passed, behind)


def _tell_if_it_goes_on(name: str, store: str) -> None:
    """Say that the job goes on with a sweep, if the store is here and has it."""
    from automl.control.preflight import existing_sweeps

    with suppress(UsageError):  # the job may reach a store that this machine does not
        if name in existing_sweeps(store):
            place = "" if store == STORE else f" of {store}"
            goes_on = f"the job goes on with the sweep {name}{place}"
            say(f"{goes_on}; for another one, give --name", err=True)
