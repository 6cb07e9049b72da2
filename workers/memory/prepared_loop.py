"""Peak memory of a training loop of the user's own before it runs: two updates on fake tensors.

The whole function runs on fake tensors, so that a model that does not fit is not built either.
Integers stay real, as far as they are few: loops draw their batches by them.
"""

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_iter, tree_map_only

from search_spaces.errors import UsageError
from search_spaces.knobs.parallelism import PARALLELISM
from search_spaces.knobs.precision import PRECISION
from search_spaces.knobs.runtime import COMPILE
from workers.context import Context
from workers.device.fake_tensors import LiveStorages, planned_for
from workers.device.precision import HALF
from workers.own_loop.prepare import Given, plan_of, prepare
from workers.parallel import STRATEGIES
from workers.parallel.mesh import Mesh
from workers.protocol import Assignment

from .estimate import Estimate, cpu_bytes, gathered_bytes, gpu_bytes

NUM_UPDATES: Final = 2  # the second has gradients and the state of the optimizer
MAX_REAL: Final = 10_000_000  # integers of a tensor that has values
_DRAWN: Final = ("randint", "randperm", "arange")


class _Enough(BaseException):
    """The updates are over; the function must not catch this as an error of its own."""


class _FakeTrial(Context):
    """A trial that ends after its updates."""

    def backward(self, loss: Any) -> None:
        """See `Context.backward`."""
        if self.loop is not None and self.loop.updates >= NUM_UPDATES:
            raise _Enough
        super().backward(loss)


def estimate_loop(
    objective: Callable[[Any], Any], params: Mapping[str, Any], ranks: int, device: str
) -> Estimate:
    """Peak memory of a rank of a function that calls `trial.prepare`.

    Args:
        ranks: of the trial.
        device: "cpu" or "cuda".

    Raises:
        UsageError: the strategy is not imitated, or the function does not come to two updates.
        Exception: of the function, which may do what fake tensors cannot.
    """
    on_cpu = device == "cpu"
    kind: Any = STRATEGIES.get(params.get(PARALLELISM.name, "ddp" if ranks > 1 else "single"))
    mesh = Mesh(0, ranks, **kind.degrees(ranks, params))
    if mesh.tensor * mesh.pipeline > 1:
        raise UsageError("tensors and stages of a function's own model are not imitated")
    eager = {name: o.unset for o in (COMPILE, PARALLELISM) if (name := o.name) in params}
    loops: list[_FakeLoop] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        planned_for(device),
        FakeTensorMode(allow_non_fake_inputs=True),
        LiveStorages(MAX_REAL, on_cpu) as storages,
        _RealIntegers(),  # type: ignore[no-untyped-call]
        patch.object(nn.Module, "to", _stay),
        patch.object(nn.Module, "cuda", _stay),
    ):
        context = _FakeTrial(Assignment("memory", 0, 1, {**params, **eager}, None, folder))
        context.preparing = partial(_prepared, loops, storages, kind.batch_shares(mesh))
        with suppress(_Enough):
            objective(context)
        if context.loop is None or context.loop.updates < NUM_UPDATES:
            raise UsageError("the function has made no update after trial.prepare")
        peak = loops[0].peak(mesh.shard, params, on_cpu=on_cpu)
    if not on_cpu:
        return Estimate(peak, device_bytes=gpu_bytes(peak, mesh))
    return Estimate(peak + cpu_bytes(peak, ranks, half=PRECISION.value(params) in HALF))


def _prepared(
    loops: "list[_FakeLoop]",
    storages: LiveStorages,
    shares: int,
    context: Context,
    objects: Sequence[Any],
    blocks: Any,
    tensor_plan: Any,
    options: Mapping[str, Any],
) -> Any:
    """What `trial.prepare` returns on fake tensors; the rows of one rank."""
    given = Given.of(objects)
    if given.model is None or given.optimizer is None:
        raise UsageError("memory is estimated of a model and an optimizer")
    layers = plan_of(given.model, blocks, tensor_plan or {}).layers
    loops.append(_FakeLoop(given.model, given.optimizer, layers, storages))
    kept = [_Share(one, shares) if one is given.loader else one for one in objects]
    options = {name: v for name, v in options.items() if name != PARALLELISM.name}
    return prepare(context, kept, blocks, tensor_plan, options)


class _FakeLoop:
    """The updates of a loop, and what its tensors take."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        layers: Sequence[str],
        storages: LiveStorages,
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._layers = tuple(layers)
        self._storages = storages
        self._before = storages.now - _bytes(model.parameters())  # data of the function

    def peak(self, shards: int, params: Mapping[str, Any], *, on_cpu: bool) -> int:
        """Bytes of a rank at the peak; data from before `prepare` is on the CPU."""
        peak = self._storages.peak - (0 if on_cpu else self._before)
        if shards == 1:
            return peak
        held = _bytes(self._model.parameters())
        values = [v for entry in self._optimizer.state.values() for v in entry.values()]
        state = _bytes(value for value in values if isinstance(value, Tensor))
        activations = max(0, peak - 2 * held - state)
        gathered = gathered_bytes(self._model, self._layers, params)
        return (2 * held + state) // shards + activations + gathered


class _Share:
    """A loader whose batches have the rows of one rank."""

    def __init__(self, loader: Any, shares: int) -> None:
        self._loader = loader
        self._shares = shares

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        for batch in self._loader:
            yield tree_map_only(Tensor, self._rows, batch)

    def _rows(self, tensor: Tensor) -> Tensor:
        return tensor[: math.ceil(len(tensor) / self._shares)] if tensor.ndim else tensor


class _RealIntegers(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes integers for real; use it inside of a FakeTensorMode."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [one for one in tree_iter((args, kwargs)) if isinstance(one, Tensor)]
        if given:
            real = not any(isinstance(t, FakeTensor) or t.is_floating_point() for t in given)
        else:
            sizes = [one for one in tree_iter(args) if isinstance(one, int)]
            named = func.__name__.split(".")[0] in _DRAWN
            real = named and math.prod(map(abs, filter(None, sizes[1:] or sizes))) <= MAX_REAL
        if not real:
            return func(*args, **kwargs)
        with _disable_current_modes():
            return func(*args, **kwargs)


def _stay(module: nn.Module, *given: Any, **named: Any) -> nn.Module:
    """In place of `Module.to`: torch cannot exchange fake parameters, and all are on one device."""
    dtype = torch._C._nn._parse_to(*given, **named)[1] if given or named else None
    for tensor in (*module.parameters(), *module.buffers()) if dtype else ():
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(dtype)
    return module


def _bytes(tensors: Any) -> int:
    return sum(tensor.nbytes for tensor in {id(t): t for t in tensors}.values())
