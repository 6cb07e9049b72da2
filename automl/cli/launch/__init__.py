"""`automl launch SYSTEM CONFIG`: run a sweep as a job of another system."""

import click

from .kuberay import kuberay
from .slurm import slurm


@click.group("launch", short_help="Run a sweep as a job of Slurm or Kubernetes.")
def command() -> None:
    """Run a sweep as a job of Slurm or Kubernetes.

    The job starts Ray on its nodes and runs the sweep. If the store has a sweep of that name, the
    job goes on with it: a job that was interrupted continues when it runs again.

    \b
    Examples:
      automl launch slurm configs/nmt.yaml --nodes 4 --gpus-per-node 8 --time 8:00:00
      automl launch kuberay mine.yaml --image me/automl --store postgresql://automl@db/automl
    """


command.add_command(slurm)
command.add_command(kuberay)
