"""`automl launch slurm CONFIG`: submit a batch job that runs a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..common import emit, say
from ..program import Program, ProgramVerb
from .options import checked_sweep, sweep_options, tell_if_it_goes_on


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


@click.command("slurm", cls=SlurmVerb, short_help="Submit a batch job of Slurm.")
@sweep_options
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True, metavar="N")
@click.option(
    "--gpus-per-node", type=click.IntRange(0), default=0, metavar="N", help="[default: none]"
)
@click.option(
    "--cpus-per-node",
    type=click.IntRange(1),
    metavar="N",
    help="Cores of each node.  [default: whole nodes]",
)
@click.option(
    "--time",
    "time",
    metavar="TIME",
    default="",
    help="Limit of one run of the job, as sbatch takes it: 8:00:00 or 2-12 (days and hours).",
)
@click.option("--partition", metavar="NAME", default="")
@click.option("--account", metavar="NAME", default="")
@click.option(
    "--grace",
    type=click.IntRange(30),
    default=180,
    show_default=True,
    metavar="SECONDS",
    help="Time before the limit at which trials are saved and the job is requeued.",
)
@click.option(
    "--requeues",
    type=click.IntRange(0),
    default=50,
    show_default=True,
    metavar="N",
    help="How often the job requeues itself at its time limit.",
)
@click.option("--interface", metavar="NAME", default="", help="Network for Ray, such as ib0.")
@click.option(
    "--setup",
    multiple=True,
    metavar="LINE",
    help="Line of bash that runs first, such as 'module load cuda'; may be repeated.",
)
def slurm(
    config: str,
    overrides: tuple[str, ...],
    program: Program | None,
    flags: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    requeues: int,
    setup: tuple[str, ...],
    nodes: int,
    gpus_per_node: int,
    cpus_per_node: int | None,
    time: str,
    partition: str,
    account: str,
    grace: int,
    interface: str,
    **options: Any,
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
      automl launch slurm mine.yaml --time 4:00:00 -- --qos=low -- python train.py --lr={lr}
    """
    from automl.launch.slurm import SlurmJob

    sweep = checked_sweep(config, overrides, program, options)
    job = SlurmJob(
        sweep,
        Path.cwd(),
        nodes,
        time,
        gpus_per_node,
        cpus_per_node,
        partition,
        account,
        grace,
        requeues,
        interface=interface,
        setup=setup,
        flags=flags,
    )
    if dry_run:
        emit({"sweep": sweep.name, "script": job.script()}) if as_json else say(job.script())
        return
    tell_if_it_goes_on(sweep.name, sweep.store)
    number = job.submit()
    log = job.log.replace("%j", number)
    if as_json:
        emit({"sweep": sweep.name, "store": sweep.store, "job": number, "log": log})
    else:
        say(f"job {number} runs the sweep {sweep.name}; its messages: {log}")
