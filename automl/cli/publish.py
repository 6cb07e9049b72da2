"""`automl publish SWEEP TRACKER`: write a sweep for another tool."""

from pathlib import Path

import click

from automl.errors import UsageError

from .common import opened, say, store_option, sweep_or_newest


@click.command("publish", short_help="Write a sweep for TensorBoard, MLflow or Weights & Biases.")
@sweep_or_newest
@click.argument("target", type=click.Choice(["tensorboard", "mlflow", "wandb"]))
@store_option
@click.option(
    "--to",
    metavar="TARGET",
    help="Folder for TensorBoard, tracking URI for MLflow, project for Weights & Biases.",
)
def command(sweep: str, target: str, store: str, to: str | None) -> None:
    """Write the curves, configurations and results of every trial for another tool.

    Data that the tool already has stays; in MLflow, runs are completed. To write a sweep while it
    runs, set `trackers: [mlflow]` in its configuration.

    \b
    Examples:
      automl publish nmt tensorboard --to runs/nmt     then: tensorboard --logdir runs/nmt
      automl publish nmt mlflow --to http://127.0.0.1:5000
    """
    from automl.trackers.base import TrackedSweep, Tracker, check_trackers, write_all

    check_trackers([target])
    with opened(store) as ledger:
        snapshot = ledger.snapshot(sweep)
        tracked = TrackedSweep.of(ledger, sweep)
    tracker: Tracker
    if target == "tensorboard":
        from automl.trackers.tensorboard import TensorBoardTracker

        folder = Path(to or f"{sweep}-tensorboard")
        if folder.exists() and any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty; name a new folder")
        tracker = TensorBoardTracker(folder, inside=True)
    elif target == "mlflow":
        from automl.trackers.mlflow import MlflowTracker

        tracker = MlflowTracker(to)
    else:
        from automl.trackers.wandb import WandbTracker

        tracker = WandbTracker(to)
    count = write_all(tracker, tracked, snapshot)
    say(f"wrote {count} trials to {tracker.place}")
    if target == "tensorboard":
        say(f"show them with: tensorboard --logdir {folder}")
