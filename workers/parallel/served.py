"""The parameter-server hybrid for a model and a training loop of the user's own."""

import os
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from search_spaces.errors import UsageError
from workers.context import Context
from workers.data.batch import BatchShare, CountedRows
from workers.device.precision import Precision
from workers.ranks.process_group import connect, disconnect
from workers.workload import ParallelPlan

from .mesh import Mesh
from .strategies.embedding_server import EmbeddingServer


class ServedEmbeddings:
    """Trains a model whose large embeddings lie on the last rank, the rest under DDP.

    It is the strategy `embedding_server` without the project's trainer. The last rank trains too.
    Every rank makes the same calls. Use it as a context manager in a function that has at least two
    ranks; it makes the process group. Its worker process takes no further trial.

    Args:
        trial: what the function was called with.
        model: of the user; the weights of the last rank's embeddings and of rank 0's other
            parameters count.
        embeddings: dotted names of `torch.nn.Embedding` modules of the model.

    Raises:
        UsageError: there is one rank, there is a process group, or a name is not an embedding.

    Example:
        def objective(trial):
            with ServedEmbeddings(trial, Model(), ["words"]) as served:
                optimizer = torch.optim.Adagrad(served.parameters(), lr=trial.params["lr"])
                for ids, target in batches_of(trial.rank, trial.world_size):
                    loss = served.backward(lambda model: mse_loss(model(ids), target))
                    optimizer.step()
    """

    def __init__(self, trial: Context, model: nn.Module, embeddings: Sequence[str]) -> None:
        if trial.world_size < 2:
            raise UsageError(
                f"an embedding server needs at least 2 ranks, this trial has {trial.world_size}: "
                "set ranks"
            )
        if torch.distributed.is_initialized():
            raise UsageError(
                "ServedEmbeddings makes the process group: leave out init_process_group"
            )
        self._trial = trial
        self._given = model
        self._own: Any = _Own(tuple(embeddings))
        self._device = torch.device(trial.device)
        self._precision = Precision("fp32", self._device)
        self._strategy: EmbeddingServer

    def __enter__(self) -> Self:
        rank, world_size = self._trial.rank, self._trial.world_size
        address = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        connect(rank, world_size, address, self._device)
        mesh = Mesh(rank, world_size, data=world_size)
        self._strategy = EmbeddingServer(mesh, self._own, self._device)
        try:
            self._strategy.wrap(self._given.cpu())
        except BaseException:
            self._leave(failed=True)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave(failed=kind is not None)

    @property
    def model(self) -> nn.Module:
        """The model; it looks rows up on the last rank, so call it equally often on every rank."""
        return self._strategy.plain

    def parameters(self) -> Iterable[nn.Parameter]:
        """What this rank's optimizer updates: the dense parameters, on the last rank all."""
        return list(self._strategy.parameters().values())

    def backward(self, loss_of: Callable[[nn.Module], Tensor]) -> Tensor:
        """Set the gradients of the mean over ranks of their losses; earlier ones are dropped.

        Args:
            loss_of: this rank's loss, a scalar, given the model to call.

        Returns:
            The mean loss over all ranks, a scalar without gradient.
        """
        for parameter in self._strategy.parameters().values():
            parameter.grad = None
        self._own.loss_of = loss_of
        share = BatchShare((CountedRows(),), True, float(self._trial.world_size))
        found = self._strategy.gradients(share, self._precision)
        self._strategy.gather_gradients()
        torch.distributed.all_reduce(found)
        return found

    def state(self) -> dict[str, Tensor]:
        """All weights by name, on the CPU of rank 0, such as for `trial.save`; elsewhere empty."""
        return self._strategy.state()

    def load(self, state: dict[str, Tensor]) -> None:
        """Overwrite all weights by those that rank 0 passes; other ranks may pass anything.

        Raises:
            UsageError: a tensor is missing.
        """
        self._strategy.load(state)

    def _leave(self, *, failed: bool) -> None:
        if failed:  # the other ranks fail because this one left, so theirs must be later
            self._trial.note_failure()
        self._strategy.close(failed)
        disconnect(failed=failed)


class _Own:
    """A model and a loss in the place of a workload."""

    loss_of: Callable[[nn.Module], Tensor]

    def __init__(self, embeddings: tuple[str, ...]) -> None:
        self._embeddings = embeddings

    def plan(self, model: nn.Module) -> ParallelPlan:
        return ParallelPlan(embeddings=self._embeddings)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return self.loss_of(model)
