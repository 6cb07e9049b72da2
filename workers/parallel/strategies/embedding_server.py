"""Large embeddings on a parameter server, the rest of the model on data-parallel trainers."""

import threading
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import autograd as _autograd
from torch.distributed import rpc as _rpc

from search_spaces.errors import UsageError
from search_spaces.knobs.parallelism import StrategyNeeds
from workers.batches import BatchShare
from workers.device.precision import Precision
from workers.parallel.strategies.ddp import DDP
from workers.ranks import WAIT_FOR_RANKS, side_group, side_store

rpc: Any = _rpc  # neither module is typed
autograd: Any = _autograd

# RPC calls functions of a module, so the server keeps the embeddings of its one trial here.
_served: dict[str, nn.Embedding] = {}
_collecting = threading.Lock()


class EmbeddingServer(DDP):
    """The hybrid of RPC and data parallelism.

    Sources: Li et al. 2020 (https://arxiv.org/abs/2006.15704), Dean et al. 2012.

    The last rank serves the embeddings that the workload's plan names, in its CPU memory. Every
    rank trains, the last one too, so that no GPU waits: ranks share the batch out, look rows up
    and send their gradients back over RPC, with the dense part under DistributedDataParallel.
    Updates are synchronous: the server sums the gradients of all ranks and steps once, as one rank
    would.
    """

    needs = StrategyNeeds(
        "large embeddings on a parameter server, the rest data-parallel",
        backends=("gloo",),
        plan=("embeddings",),
        rpc=True,
    )
    replicated = False
    apart = True

    def wrap(self, model: nn.Module) -> None:
        """Keep the embeddings on the server, the rest on trainers.

        Raises:
            UsageError: the workload's plan names no embedding.
        """
        rank, size = self.mesh.rank, self.mesh.world_size
        tables: dict[str, Any] = {
            name: model.get_submodule(name) for name in self.workload.plan(model).embeddings
        }
        if not tables:
            raise UsageError("this workload's plan names no embedding that a server may hold")
        self._remote = tuple(f"{name}." for name in tables)
        # As `rpc.init_rpc` does, through the store at which the ranks have met already.
        autograd._init(rank)
        rpc._init_rpc_backend(
            store=side_store("rpc"),
            name=f"rank-{rank}",
            rank=rank,
            world_size=size,
            rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
                rpc_timeout=WAIT_FOR_RANKS.total_seconds()
            ),
        )
        for name, table in tables.items():
            model.set_submodule(name, RemoteEmbedding(f"rank-{size - 1}", name, table, 1 / size))
        model.to(self.device)
        super().wrap(model)
        if rank == size - 1:
            _served.update(tables)
            for name, table in tables.items():  # DistributedDataParallel has not seen these
                model.get_submodule(name).weight = table.weight

    def gradients(self, share: BatchShare, precision: Precision) -> Tensor:
        dist.barrier(group=side_group())  # the server has made its last step
        return super().gradients(share, precision)

    def grad_norm(self) -> Tensor:
        """The norm over the whole model; every rank's gradients are complete when it returns."""
        dist.barrier(group=side_group())
        return super().grad_norm()

    def copies(self, name: str, parameter: nn.Parameter) -> int:
        return 1 if name.startswith(self._remote) else self.batch_degree

    def sends(self, name: str) -> bool:
        return self.mesh.rank == 0 or name.startswith(self._remote)

    def close(self, failed: bool = False) -> None:
        """Leave RPC; wait for the other ranks unless the attempt failed."""
        _served.clear()
        if rpc._is_current_rpc_agent_set():
            rpc.shutdown(graceful=not failed)


class RemoteEmbedding(nn.Module):
    """Rows of an embedding on another rank, which receives their gradients.

    Args:
        server: the name of that rank.
        name: of the embedding in the model.
        like: the embedding.
        factor: of the gradients.
    """

    def __init__(self, server: str, name: str, like: nn.Embedding, factor: float) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = like.num_embeddings, like.embedding_dim
        self.served = (server, name, factor)
        self.anchor = torch.zeros((), requires_grad=True)  # else autograd leaves `_Rows` out

    def forward(self, ids: Tensor) -> Tensor:
        """Ids (...) to vectors (..., width)."""
        rows: Tensor = _Rows.apply(self.anchor, self.served, ids)  # type: ignore[no-untyped-call]
        return rows


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, anchor: Tensor, served: tuple[str, str, float], ids: Tensor) -> Any:
        server, name, _ = served
        context.served, context.ids = served, ids.cpu()
        return rpc.rpc_sync(server, _look_up, args=(name, context.ids)).to(ids.device)

    @staticmethod
    def backward(context: Any, grad: Tensor) -> Any:
        server, name, factor = context.served
        rpc.rpc_sync(server, _collect, args=(name, context.ids, (grad * factor).cpu()))
        return None, None, None


def _look_up(name: str, ids: Tensor) -> Tensor:
    with torch.no_grad():
        rows: Tensor = _served[name](ids)
    return rows


def _collect(name: str, ids: Tensor, grad: Tensor) -> None:
    with _collecting:  # on the server
        _served[name](ids).backward(grad)
