"""A function on two ranks: DistributedDataParallel on CPUs, with gloo."""

from __future__ import annotations

import argparse
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import automl
from automl import Float, Int, Space

SPACE = Space(
    Float("lr", 1e-3, 1.0, log=True, default=0.05, affects={"quality"}),
    Int("width", 4, 64, log=True, default=16),
)


def objective(trial: Any) -> dict[str, float]:
    """Fit a sine wave; each rank has its part of the points."""
    torch.manual_seed(trial.seed)
    # The sweep has set the variables of torchrun, by which the ranks meet.
    dist.init_process_group("nccl" if trial.device.startswith("cuda") else "gloo")
    x = torch.linspace(-3, 3, 512, device=trial.device)[:, None]
    own = x[trial.rank :: trial.world_size]
    width = trial.params["width"]
    network = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, 1)).to(trial.device)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), trial.params["lr"])
    loss = 1.0
    for epoch in range(1, 11):
        for _ in range(20):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(own), own.sin()).backward()
            optimizer.step()
        with torch.no_grad():  # the weights are the same on all ranks, and so is this loss
            loss = float(nn.functional.mse_loss(network(x), x.sin()))
        if not trial.report(step=epoch, loss=loss):  # every rank reports, and all stop together
            break
    return {"loss": loss}


def main(trials: int = 10, dispatcher: str = "local") -> automl.Result:
    """Tune it; each trial takes both slots."""
    result = automl.sweep(
        objective,
        SPACE,
        "minimize loss",
        trials=trials,
        workers=2,
        ranks=2,
        dispatcher=dispatcher,
        name="distributed",
        resume=True,
    )
    print(f"loss {result.best.value:.4f} with {result.best.params}")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10)
    main(parser.parse_args().trials)
