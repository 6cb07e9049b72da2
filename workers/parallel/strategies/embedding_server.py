"""Large embeddings on a parameter server, the rest of the model on data-parallel trainers."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import autograd as _autograd
from torch.distributed import rpc as _rpc
from torch.distributed.rendezvous import register_rendezvous_handler
from torch.nn.parallel import DistributedDataParallel

from search_spaces.errors import UsageError
from workers.device.precision import wide
from workers.parallel.base import Strategy, Tensors, collected
from workers.parallel.mesh import PATIENCE, side_group, side_store
from workers.parallel.needs import Needs

from .ddp import once

if TYPE_CHECKING:
    from workers.device.precision import Precision
    from workers.workload import Batch

__all__ = ["EmbeddingServer"]

rpc: Any = _rpc  # neither module is typed
autograd: Any = _autograd

_served: dict[str, nn.Embedding] = {}  # on the server: what trainers look up
_collecting = threading.Lock()
_SCHEME = "automl-ranks"  # of the rendezvous that is already there


class EmbeddingServer(Strategy):
    """The hybrid of RPC and data parallelism (Li et al. 2020, https://arxiv.org/abs/2006.15704; Dean et al. 2012).

    The last rank serves the embeddings that the workload's plan names, in its CPU memory; the others look rows up
    over RPC, share the batch out, and run backward through distributed autograd with the dense part under
    DistributedDataParallel. Updates are synchronous: the server sums the gradients of all trainers and steps once, so
    that what is computed is the same as on one rank.
    """

    needs = Needs(
        "large embeddings on a parameter server, the rest data-parallel",
        backends=("gloo",),
        plan=("embeddings",),
        rpc=True,
    )
    apart = True
    spends_process = (
        True  # RPC and distributed autograd remember ranks, and hang or refuse where these change
    )

    @classmethod
    def degrees(cls, num_ranks: int, options: Mapping[str, Any]) -> dict[str, int]:
        """All ranks on the data axis, of which the last serves."""
        if num_ranks < 2:
            raise UsageError(
                f"an embedding server and a trainer take at least 2 ranks, got {num_ranks}"
            )
        return {"data": num_ranks}

    @property
    def batch_degree(self) -> int:
        """Trainers."""
        return self.mesh.world_size - 1

    @property
    def batch_rank(self) -> int:
        """Which trainer this is."""
        return self.mesh.rank

    @property
    def serves(self) -> bool:
        """Whether this rank is the server."""
        return self.mesh.rank == self.mesh.world_size - 1

    def wrap(self, model: nn.Module) -> None:
        """Keep the embeddings on the server, the rest on trainers.

        Raises:
            UsageError: the workload's plan names no embedding.
        """
        names = self.workload.plan(model).embeddings
        if not names:
            raise UsageError("this workload's plan names no embedding that a server may hold")
        trainers = dist.new_group(list(range(self.batch_degree)))
        self._meet()
        prefixes = tuple(f"{name}." for name in names)
        mine = [
            name for name, _ in model.named_parameters() if name.startswith(prefixes) == self.serves
        ]
        self._parameters = {name: p for name, p in model.named_parameters() if name in mine}
        kept = model.state_dict()
        self._buffers = {n: b for n, b in model.named_buffers() if n in kept and not self.serves}
        if self.serves:
            _served.update({name: _embedding(model, name).cpu() for name in names})
            return
        for name in names:
            parent, _, child = name.rpartition(".")
            embedding = _embedding(model, name)
            remote = RemoteEmbedding(self.server, name, embedding)
            setattr(model.get_submodule(parent) if parent else model, child, remote)
        self.plain = model
        devices = [self.device] if self.device.type == "cuda" else None
        self.model = DistributedDataParallel(
            model, device_ids=devices, process_group=trainers, **once()
        )

    def _meet(self) -> None:
        """Start RPC among all ranks, which meet where they met before.

        RPC numbers what it does by process and by the names of its ranks. Warm workers have different pasts, so these
        numbers begin anew and the names are new ones.
        """
        box = [uuid.uuid4().hex[:12]]
        dist.broadcast_object_list(box, src=0, group=side_group())
        rpc._init_counter = 0
        with contextlib.suppress(RuntimeError):  # it was registered before
            register_rendezvous_handler(_SCHEME, _rendezvous)  # type: ignore[no-untyped-call]
        options = rpc.TensorPipeRpcBackendOptions(
            init_method=f"{_SCHEME}://{box[0]}", rpc_timeout=PATIENCE.total_seconds()
        )
        rank, size = self.mesh.rank, self.mesh.world_size
        self.server = f"{box[0]}-{size - 1}"
        rpc.init_rpc(f"{box[0]}-{rank}", rank=rank, world_size=size, rpc_backend_options=options)

    def parameters(self) -> dict[str, nn.Parameter]:
        """The embeddings on the server, the rest on trainers."""
        return self._parameters

    def buffers(self) -> Tensors:
        """Of the dense part."""
        return self._buffers

    def gradients(
        self, batch: Batch, weight: float, precision: Precision, accumulation: int
    ) -> Tensor:
        """Backward on trainers, which hand the server its gradients; the server waits for them in `grad_norm`."""
        total = torch.zeros((), device=self.device)
        if self.serves:
            return total
        for part, real, _ in self.microbatches(batch, accumulation):
            with autograd.context() as context:
                with precision.autocast():
                    loss = self.workload.loss(self.model, part)
                mean = wide(loss) / weight if real else wide(loss) * 0.0
                autograd.backward(context, [mean * (precision.scale * self.batch_degree)])
                found = autograd.get_gradients(context)
                for parameter in self._parameters.values():
                    if parameter in found:
                        grad = found[parameter]
                        parameter.grad = (
                            grad.clone() if parameter.grad is None else parameter.grad + grad
                        )
                # the trainers' losses are multiplied by their number, since DistributedDataParallel averages
                rpc.rpc_sync(self.server, _collect, args=(context, 1 / self.batch_degree))
            total += mean.detach()
        return total

    def grad_norm(self) -> float:
        """Of the whole model; every rank's gradients are there when it returns."""
        dist.barrier(group=side_group())
        return super().grad_norm()

    def whole(self) -> nn.Module | None:
        """The model is in parts."""
        return None

    def copies(self, name: str, parameter: nn.Parameter) -> int:
        """One embedding, a dense parameter on each trainer."""
        return 1 if self.serves else self.batch_degree

    def merge(self, mine: Tensors) -> Tensors:
        """Rank 0's and the server's, on rank 0."""
        return collected(mine if self.serves or self.mesh.rank == 0 else {})

    def close(self, failed: bool = False) -> None:
        """Leave RPC; together, unless the attempt failed."""
        _served.clear()
        if rpc._is_current_rpc_agent_set():
            rpc.shutdown(graceful=not failed)


class RemoteEmbedding(nn.Module):
    """Rows of an embedding that lies on another rank; gradients flow there in a distributed autograd context."""

    def __init__(self, server: str, name: str, like: nn.Embedding) -> None:
        super().__init__()
        self.server, self.name = server, name
        self.num_embeddings, self.embedding_dim = like.num_embeddings, like.embedding_dim

    def forward(self, ids: Tensor) -> Tensor:
        """Ids of any shape to vectors (..., width)."""
        rows: Tensor = rpc.rpc_sync(self.server, _look_up, args=(self.name, ids.cpu()))
        return rows.to(ids.device)


def _look_up(name: str, ids: Tensor) -> Tensor:
    rows: Tensor = _served[name](ids)
    return rows


def _collect(context: int, factor: float) -> None:
    """On the server: add a trainer's gradients, which its backward left in the context."""
    found = autograd.get_gradients(context)
    with _collecting:
        for embedding in _served.values():
            weight = embedding.weight
            if weight in found:
                grad = found[weight] * factor
                weight.grad = grad if weight.grad is None else weight.grad + grad


def _embedding(model: nn.Module, name: str) -> nn.Embedding:
    module = model.get_submodule(name)
    if not isinstance(module, nn.Embedding):
        raise UsageError(
            f"an embedding server holds embeddings, {name!r} is a {type(module).__name__}"
        )
    return module


def _rendezvous(url: str, **_: Any) -> Iterator[tuple[Any, int, int]]:
    yield side_store("rpc"), dist.get_rank(), dist.get_world_size()
