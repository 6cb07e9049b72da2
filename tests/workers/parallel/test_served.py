"""The parameter-server hybrid in a function of the user's own, on real gloo ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from search_spaces.errors import UsageError
from workers.context import Context
from workers.parallel.mesh import Mesh
from workers.parallel.served import ServedEmbeddings
from workers.parallel.strategies.embedding_server import EmbeddingServer
from workers.protocol import Ending
from workers.workload import ParallelPlan

STEPS = 5


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(40, 6), nn.Embedding(7, 6)
        self.output = nn.Linear(6, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        places = self.places(torch.arange(ids.shape[1]) % 7)
        return self.output((self.words(ids) + places).tanh().mean(1)).squeeze(1)


def data() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(3)
    return Bags(), torch.randint(0, 40, (12, 5)), torch.randn(12)


def trained(context: Context) -> dict[str, float]:
    model, ids, target = data()
    mine = slice(context.rank, None, context.world_size)
    with ServedEmbeddings(context, model, context.params["embeddings"]) as served:
        held = {name for name, _ in served._strategy.parameters().items()}
        assert ("words.weight" in held) == (context.rank == context.world_size - 1)
        optimizer = torch.optim.Adagrad(served.parameters(), lr=0.3)
        for step in range(1, STEPS + 1):
            loss = served.backward(
                lambda model: nn.functional.mse_loss(model(ids[mine]), target[mine])
            )
            if context.params.get("fails") and context.rank == 1 and step == 2:
                raise ValueError("of rank 1")
            optimizer.step()
            context.report(step=step, loss=float(loss))
        state = served.state()
        assert bool(state) == (context.rank == 0)
        context.save(state)
        served.load({name: torch.zeros_like(tensor) for name, tensor in state.items()})
        nothing = sum(float(tensor.abs().sum()) for tensor in served.state().values())
    return {"loss": float(loss), "rest": nothing}


def alone() -> tuple[list[float], dict[str, torch.Tensor]]:
    model, ids, target = data()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.3)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(ids), target)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, model.state_dict()


def test_ranks_train_as_one_process_does(runner: Any) -> None:
    runner.objective = trained
    outcome = runner(ranks=3, torchrun=True, embeddings=["words", "places"])
    assert outcome.ending is Ending.COMPLETED, outcome.details.get("traceback", outcome.message)
    losses, weights = alone()
    assert [report.metrics["loss"] for report in runner.reports] == pytest.approx(losses, rel=1e-5)
    found = Context(runner.assignment(resume=True)).restore()
    assert found.keys() == weights.keys()
    for name, tensor in weights.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-6)
    assert outcome.metrics["rest"] == 0.0, "all weights were overwritten"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wrods", "the model has no module 'wrods' for an embedding server"),
        ("output", "an embedding server holds embeddings, 'output' is a Linear"),
    ],
)
def test_a_wrong_name_is_said(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        EmbeddingServer.imitate(Bags(), ParallelPlan(embeddings=(name,)), Mesh(0, 2, data=2))


def test_a_rank_that_fails_ends_the_others(runner: Any) -> None:
    runner.objective = trained
    outcome = runner(ranks=2, torchrun=True, embeddings=["words"], fails=True)
    assert (outcome.ending, outcome.message) == (Ending.FAILED, "ValueError: of rank 1")


def test_one_rank_is_refused(runner: Any) -> None:
    runner.objective = trained
    outcome = runner(embeddings=["words"])
    assert "needs at least 2 ranks, this trial has 1" in outcome.message
