"""A large embedding on the last of two ranks, the rest of the model under DDP."""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import nn

import automl
from automl import Float, Int, Space
from workers.parallel.served import ServedEmbeddings

SPACE = Space(
    Float("lr", 1e-2, 1.0, log=True, default=0.1, affects={"quality"}),
    Int("width", 4, 32, log=True, default=8),
)
WORDS = 2000


class Model(nn.Module):
    """Scores a bag of words."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.output = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Ids (b, n) to scores (b,)."""
        scores: torch.Tensor = self.output(self.words(ids).mean(1)).squeeze(1)
        return scores


def objective(trial: Any) -> dict[str, float]:
    """Learn whether most ids of a bag are even; each rank has its part of the bags."""
    torch.manual_seed(trial.seed)
    ids = torch.randint(0, WORDS, (512, 9))
    target = (ids % 2 == 0).float().mean(1)
    mine = slice(trial.rank, None, trial.world_size)
    loss = 1.0
    with ServedEmbeddings(trial, Model(trial.params["width"]), ["words"]) as served:
        optimizer = torch.optim.Adagrad(served.parameters(), lr=trial.params["lr"])
        for epoch in range(1, 11):
            for _ in range(5):
                mean = served.backward(
                    lambda model: nn.functional.mse_loss(model(ids[mine]), target[mine])
                )
                optimizer.step()
            loss = float(mean)  # the same on every rank
            if not trial.report(step=epoch, loss=loss):
                break
    return {"loss": loss}


def main(trials: int = 6, dispatcher: str = "local") -> automl.Result:
    """Tune it; each trial takes both slots."""
    result = automl.sweep(
        objective,
        SPACE,
        "minimize loss",
        trials=trials,
        workers=2,
        ranks=2,
        dispatcher=dispatcher,
        name="embedding-server",
        resume=True,
    )
    print(f"loss {result.best.value:.4f} with {result.best.params}")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=6)
    main(parser.parse_args().trials)
