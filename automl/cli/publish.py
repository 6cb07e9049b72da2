"""`automl publish SWEEP`: write a sweep for TensorBoard or MLflow."""

from pathlib import Path

import click

from .common import opened, say, store_option, sweep_or_newest


@click.command("publish", short_help="Write a sweep for TensorBoard or MLflow.")
@sweep_or_newest
@click.argument("target", type=click.Choice(["tensorboard", "mlflow"]))
@store_option
@click.option("--to", metavar="TARGET", help="Folder for TensorBoard, tracking URI for MLflow.")
def command(sweep: str, target: str, store: str, to: str | None) -> None:
    """Write the curves, configurations and results of every trial for another tool.

    \b
    Examples:
      automl publish nmt tensorboard --to runs/nmt     then: tensorboard --logdir runs/nmt
      automl publish nmt mlflow --to http://127.0.0.1:5000
    """
    with opened(store) as ledger:
        snapshot, own = ledger.snapshot(sweep), ledger.files(sweep)
    if target == "tensorboard":
        from automl.integrations import tensorboard

        folder = Path(to or f"{sweep}-tensorboard")
        count = tensorboard.write(snapshot, folder, own)
        say(f"wrote {count} trials to {folder}; show them with: tensorboard --logdir {folder}")
        return
    from automl.integrations import mlflow

    uri = to or "sqlite:///mlflow.db"
    run = mlflow.write(snapshot, uri)
    say(f"logged {sweep} to {uri} as run {run}")
