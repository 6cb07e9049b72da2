"""A PyTorch training loop of one's own: a small network that learns which spiral a point is on."""

from __future__ import annotations

import argparse
from itertools import pairwise
from typing import Any

import torch
from torch import nn

import automl
from automl import Choice, Float, Int, Space

SPACE = Space(
    Float("lr", 1e-4, 1e-1, log=True, default=1e-2, affects={"quality"}),
    Int("width", 4, 128, log=True, default=16),
    Int("depth", 1, 4, default=2),
    Choice("optimizer", ["sgd", "adam"], default="adam", affects={"quality"}),
    Float("momentum", 0.0, 0.99, default=0.9, when={"optimizer": "sgd"}, affects={"quality"}),
    Choice("activation", ["relu", "tanh"], default="relu"),
)


def spirals(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points `count x 2` on two spirals, and which of the two each is on."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.arange(count) % 2
    turn = torch.rand(count, generator=generator).sqrt() * 3 * torch.pi
    angle = turn + label * torch.pi
    points = torch.stack([turn * angle.cos(), turn * angle.sin()], 1) / 5
    return points + 0.1 * torch.randn(count, 2, generator=generator), label


def network(params: dict[str, Any]) -> nn.Module:
    """As deep and wide as the configuration says."""
    activation = {"relu": nn.ReLU, "tanh": nn.Tanh}[params["activation"]]
    sizes = [2, *[params["width"]] * params["depth"]]
    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), activation())]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], 2))


def objective(trial: Any) -> dict[str, float]:
    """Train, report after each epoch, return what counts."""
    params = dict(trial.params)
    torch.manual_seed(trial.seed)
    (x, y), (x_valid, y_valid) = spirals(600, 0), spirals(400, 1)
    model = network(params)
    if params["optimizer"] == "sgd":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(
            model.parameters(), params["lr"], params["momentum"]
        )
    else:
        optimizer = torch.optim.Adam(model.parameters(), params["lr"])
    error = 1.0
    for epoch in range(1, 16):
        for rows in torch.randperm(len(x)).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
        with torch.no_grad():
            error = float((model(x_valid).argmax(1) != y_valid).float().mean())
        if not trial.report(step=epoch, error=error):
            break  # the sweep has seen enough of this configuration
    return {"error": error}


def main(trials: int = 25, dispatcher: str = "ray") -> automl.Result:
    """Tune it, and say what came of it."""
    result = automl.sweep(
        objective,
        SPACE,
        "minimize error",
        trials=trials,
        workers=2,
        dispatcher=dispatcher,
        name="spirals",
        resume=True,
    )
    print(f"error {result.best.value:.3f} with {result.best.params}")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=25)
    main(parser.parse_args().trials).save_report("spirals.html")
