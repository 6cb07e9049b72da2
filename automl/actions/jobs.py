"""Actions that run a sweep as a job of another system."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from .action import Action, Argument
from .arguments import CONFIG, JSON, OBJECTIVE, STORE, setting
from .headings import PREPARE

_JOB: Final = (
    *CONFIG,
    Argument("name", str, "Name of the sweep.  [default: the configuration's]", "--name", "NAME"),
    *map(setting, ("trials", "budget", "seed")),
    replace(
        STORE,
        help="Folder or database URL of the sweeps; the job must see it.  [default: .automl]",
        default=None,
    ),
    OBJECTIVE,
    Argument("dry_run", bool, "Print the job and submit nothing.", "--dry-run", default=False),
    JSON,
)


def _count(name: str, help: str = "", default: int | None = 0, min: int = 0) -> Argument:
    return Argument(name, int, help, f"--{name.replace('_', '-')}", "N", default, min=min)


def _text(name: str, help: str = "", metavar: str = "NAME", default: str = "") -> Argument:
    return Argument(name, str, help, f"--{name.replace('_', '-')}", metavar, default)


JOBS: Final = (
    Action(
        "launch",
        PREPARE,
        "Run a sweep as a job of Slurm.",
        """Run a sweep as a job of Slurm.

        The job starts Ray on its nodes and runs the sweep. If the store has a sweep of that name,
        the job goes on with it: a job that was interrupted continues when it runs again.""",
        ("automl launch slurm configs/nmt.yaml --nodes 4 --gpus-per-node 8 --time 8:00:00",),
    ),
    Action(
        "launch slurm",
        PREPARE,
        "Submit a batch job of Slurm.",
        """Submit a batch job that starts Ray on its nodes and runs the sweep there.

        Ray's head and the controller run on the first node; all nodes run trials. Before its time
        limit the job saves its trials, requeues itself and goes on, until the sweep is finished.
        The current folder and the store must be on a disk that all nodes share, or the store be a
        database.""",
        (
            "automl launch slurm configs/nmt.yaml --nodes 4 --gpus-per-node 8 --time 8:00:00",
            "automl launch slurm configs/nmt.yaml --nodes 2 --time 2-0 --dry-run",
            "automl launch slurm mine.yaml --objective train.py:objective -- "
            "--constraint=h100 --mem=0",
            "automl launch slurm mine.yaml --time 4:00:00 -- --qos=low -- "
            "python train.py --lr={lr}",
        ),
        (
            *_JOB,
            _count("nodes", default=1, min=1),
            _count("gpus_per_node"),
            _count("cpus_per_node", "Cores of each node.  [default: whole nodes]", None, 1),
            _text(
                "time",
                "Limit of one run of the job, as sbatch takes it: 8:00:00 or 2-12 (days and "
                "hours).",
                "TIME",
            ),
            _text("partition"),
            _text("account"),
            Argument(
                "grace",
                int,
                "Time before the limit at which trials are saved and the job is requeued.",
                "--grace",
                "SECONDS",
                180,
                min=30,
            ),
            _count("requeues", "How often the job requeues itself at its time limit.", 50),
            _text("interface", "Network for Ray, such as ib0."),
            Argument(
                "setup",
                help="Line of bash that runs first, such as 'module load cuda'; may be repeated.",
                flag="--setup",
                metavar="LINE",
                many=True,
            ),
        ),
        "automl.cli.launch.slurm",
        parser="automl.cli.launch.SlurmVerb",
    ),
)
