"""Large embeddings on a parameter server, the rest of the model on data-parallel trainers."""

import contextlib
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import autograd as _autograd
from torch.distributed import rpc as _rpc
from torch.distributed.rendezvous import register_rendezvous_handler
from torch.nn.parallel import DistributedDataParallel

from search_spaces.errors import UsageError
from search_spaces.knobs.parallelism import StrategyNeeds
from workers.data.batch import BatchShare
from workers.device.precision import Precision, wide
from workers.parallel.base import Strategy
from workers.parallel.mesh import Mesh
from workers.parallel.transfers import Tensors, collected
from workers.ranks.process_group import WAIT_FOR_RANKS, side_group, side_store
from workers.workload import ParallelPlan

from .ddp import buffers_left_alone

rpc: Any = _rpc  # neither module is typed
autograd: Any = _autograd

# RPC calls functions of a module, so the server keeps the embeddings of its one trial here.
_served: dict[str, nn.Embedding] = {}
_collecting = threading.Lock()
_SCHEME = "automl-ranks"  # of the URL by which RPC finds the store of the ranks


class EmbeddingServer(Strategy):
    """The hybrid of RPC and data parallelism.

    Sources: Li et al. 2020 (https://arxiv.org/abs/2006.15704), Dean et al. 2012.

    The last rank serves the embeddings that the workload's plan names, in its CPU memory. Every
    rank trains, the last one too, so that no GPU waits: ranks look rows up over RPC, share the
    batch out, and run backward through distributed autograd, with the dense part under
    DistributedDataParallel. Updates are synchronous: the server sums the gradients of all ranks
    and steps once, as one rank would.
    """

    needs = StrategyNeeds(
        "large embeddings on a parameter server, the rest data-parallel",
        backends=("gloo",),
        plan=("embeddings",),
        rpc=True,
    )
    apart = True

    @classmethod
    def imitate(cls, model: nn.Module, plan: ParallelPlan, mesh: Mesh) -> int:
        """Leave no rows of the served embeddings; see `Strategy`."""
        for name in plan.embeddings:
            _replace(model, name, _ReceivedRows(_embedding(model, name).embedding_dim))
        return 0

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
        self._meet()
        self._prefixes = tuple(f"{name}." for name in names)
        if self.serves:
            _served.update({name: _embedding(model, name) for name in names})
        self.held_parameters = {
            name: p for name, p in model.named_parameters() if self.serves or not self._remote(name)
        }
        kept = model.state_dict()
        for name in names:
            like = _embedding(model, name)
            server = "" if self.serves else self.server
            _replace(model, name, RemoteEmbedding(server, name, like))
        model.to(self.device)
        self.held_buffers = {name: b for name, b in model.named_buffers() if name in kept}
        self.plain = model
        self.model = DistributedDataParallel(
            model,
            device_ids=[self.device] if self.device.type == "cuda" else None,
            **buffers_left_alone(),
        )

    def _meet(self) -> None:
        """Start RPC among all ranks, through the store of the default process group.

        RPC counts its groups by process and names of ranks. Workers that ran other trials have
        different counts, so the count begins anew and the names are new.
        """
        box = [uuid.uuid4().hex[:12]]
        dist.broadcast_object_list(box, src=0, group=side_group())
        rpc._init_counter = 0
        with contextlib.suppress(RuntimeError):  # already registered
            register_rendezvous_handler(_SCHEME, _rendezvous)  # type: ignore[no-untyped-call]
        options = rpc.TensorPipeRpcBackendOptions(
            init_method=f"{_SCHEME}://{box[0]}", rpc_timeout=WAIT_FOR_RANKS.total_seconds()
        )
        rank, size = self.mesh.rank, self.mesh.world_size
        self.server = f"{box[0]}-{size - 1}"
        rpc.init_rpc(f"{box[0]}-{rank}", rank=rank, world_size=size, rpc_backend_options=options)

    def gradients(self, share: BatchShare, precision: Precision) -> Tensor:
        """Run backward and send the server its gradients.

        The server waits for them in `grad_norm`.
        """
        dist.barrier(group=side_group())  # the server has made its last step
        total = torch.zeros((), device=self.device)
        for part, _ in self.microbatches(share):
            with autograd.context() as context:
                with precision.autocast():
                    loss = self.workload.loss(self.model, part)
                mean = share.mean(wide(loss))
                autograd.backward(context, [mean * (precision.scale * self.batch_degree)])
                found = autograd.get_gradients(context)
                for name, parameter in self.held_parameters.items():
                    if parameter in found and not self._remote(name):
                        grad = found[parameter]
                        seen = parameter.grad
                        parameter.grad = grad.clone() if seen is None else seen + grad
                # DistributedDataParallel averages, so the losses are multiplied by the ranks.
                if self.serves:
                    _collect(context, 1 / self.batch_degree)
                else:
                    rpc.rpc_sync(self.server, _collect, args=(context, 1 / self.batch_degree))
            total += mean.detach()
        return total

    def called_together(self) -> nn.Module | None:
        """The model of this rank, which looks rows up on the server."""
        return self.plain

    def grad_norm(self) -> Tensor:
        """The norm over the whole model; every rank's gradients are complete when it returns."""
        dist.barrier(group=side_group())
        return super().grad_norm()

    def copies(self, name: str, parameter: nn.Parameter) -> int:
        """1 for an embedding; a dense parameter is on every rank."""
        return 1 if self._remote(name) else self.batch_degree

    def merge(self, mine: Tensors) -> Tensors:
        """The tensors of rank 0 and the embeddings of the server, on rank 0."""
        if self.mesh.rank > 0:
            mine = {name: tensor for name, tensor in mine.items() if self._remote(name)}
        return collected(mine)

    def _remote(self, name: str) -> bool:
        """Whether the tensor of this name is an embedding that the server holds."""
        return name.startswith(self._prefixes)

    def close(self, failed: bool = False) -> None:
        """Leave RPC; wait for the other ranks unless the attempt failed."""
        _served.clear()
        if rpc._is_current_rpc_agent_set():
            rpc.shutdown(graceful=not failed)


class RemoteEmbedding(nn.Module):
    """Rows of an embedding on another rank; distributed autograd sends their gradients there.

    Args:
        server: the name of that rank; "" for this one.
        name: of the embedding in the model.
        like: the embedding.
    """

    def __init__(self, server: str, name: str, like: nn.Embedding) -> None:
        super().__init__()
        self.server = server
        self.name = name
        self.num_embeddings = like.num_embeddings
        self.embedding_dim = like.embedding_dim

    def forward(self, ids: Tensor) -> Tensor:
        """Ids (...) to vectors (..., width)."""
        if not self.server:
            return _look_up(self.name, ids.cpu()).to(ids.device)
        rows: Tensor = rpc.rpc_sync(self.server, _look_up, args=(self.name, ids.cpu()))
        return rows.to(ids.device)


class _ReceivedRows(nn.Module):
    """Stands for an embedding whose rows arrive over the network."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding_dim = width

    def forward(self, ids: Tensor) -> Tensor:
        return torch.empty(*ids.shape, self.embedding_dim, requires_grad=True)


def _look_up(name: str, ids: Tensor) -> Tensor:
    rows: Tensor = _served[name](ids)
    return rows


def _collect(context: int, factor: float) -> None:
    """On the server: add the gradients that a trainer's backward left in the context."""
    found = autograd.get_gradients(context)
    with _collecting:
        for embedding in _served.values():
            weight = embedding.weight
            if weight in found:
                grad = found[weight] * factor
                weight.grad = grad if weight.grad is None else weight.grad + grad


def _embedding(model: nn.Module, name: str) -> nn.Embedding:
    try:
        module = model.get_submodule(name)
    except AttributeError:
        raise UsageError(f"the model has no module {name!r} for an embedding server") from None
    if not isinstance(module, nn.Embedding):
        raise UsageError(
            f"an embedding server holds embeddings, {name!r} is a {type(module).__name__}"
        )
    return module


def _replace(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent) if parent else model, child, module)


def _rendezvous(url: str, **_: Any) -> Iterator[tuple[Any, int, int]]:
    yield side_store("rpc"), dist.get_rank(), dist.get_world_size()
